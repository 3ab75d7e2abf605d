"""These tests need Flower; tests/unit/test_flower.py runs them where ``make test`` installed it."""

import logging

import pytest
import torch

import privfl_lite as pf

torch.set_num_threads(1)
logging.getLogger("flwr").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def small():
    """Digits of 14 × 14 pixels, in clients of twelve."""
    ds = pf.load("mnist", size=14)
    return ds, {n: ds.clients(n, "iid", 12, seed=0) for n in (2, 10)}
