"""Fixtures of the theorems' tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def double():
    """Every new number is a float64, so that "equal" means equal to about twelve digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
