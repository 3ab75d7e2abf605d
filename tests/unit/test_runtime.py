"""How code runs: streams of random numbers, errors without a trace, progress, torchvision."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from privfl_lite.runtime import PrivflError, choose, device, generator, progress, torchvision


def test_streams_differ_by_every_key_and_repeat():
    def draw(*keys):
        return tuple(torch.rand(4, generator=generator(*keys)).tolist())

    keys = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 1, 2), (0, 2, 1)]
    assert len({draw(*k) for k in keys}) == len(keys)
    assert draw(3, 1, 4) == draw(3, 1, 4)


def test_a_notebook_shows_the_sentence_and_no_stack():
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import privfl_lite as pf; pf.load('minst')")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert "PrivflError: unknown data set 'minst'; choose one of: mnist" in said
    assert "Traceback" not in said and "runtime.py" not in said


def test_choose_lists_what_there_is():
    assert choose("fruit", "fig", ("fig", "pear")) == "fig"
    with pytest.raises(PrivflError, match="unknown fruit 'nut'; choose one of: fig, pear"):
        choose("fruit", "nut", ("fig", "pear"))


def test_progress_is_silent_for_short_work_and_can_be_turned_off(bar_clock, capsys, monkeypatch):
    bar_clock(0.45)
    assert list(progress(range(3), "short")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    list(progress(range(6), "long"))
    assert "long" in capsys.readouterr().err
    list(progress(range(6), "quiet", show=False))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("PRIVFL_PROGRESS", "0")
    list(progress(range(6), "hidden"))
    assert capsys.readouterr().err == ""


def test_torchvision_works_beside_this_torch():
    vision = torchvision()
    image = vision.transforms.functional.to_pil_image(torch.rand(3, 8, 8))
    assert image.size == (8, 8) and vision.datasets.MNIST and vision.models.alexnet


def test_device_is_one_that_can_compute():
    assert (torch.ones(2, device=device()) + 1).sum().item() == 4


def test_the_device_can_be_named(monkeypatch, refused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device().type == "cuda"
    monkeypatch.setenv("PRIVFL_DEVICE", "cpu")
    assert device().type == "cpu"
    monkeypatch.setenv("PRIVFL_DEVICE", "tpu")
    refused(device, "choose one of: cpu, cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("PRIVFL_DEVICE", "cuda")
    refused(device, "sees no CUDA device")
