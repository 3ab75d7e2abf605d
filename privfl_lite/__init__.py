"""privfl_lite: how federated learning leaks private data through gradients, and ways to stop it.

Data walks in one direction, and nothing imports backwards: ``data`` -> ``models`` ->
``gradients`` -> ``wire`` (types) -> ``defenses`` -> ``client`` -> ``federated`` -> ``attacks`` ->
``metrics``.

A room is imported when it is first used (``pf.attacks``, ``pf.load``), so that ``privfl --help``
does not wait for PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import assets, attacks, data, defenses, federated, metrics, models, privacy
    from .client import share
    from .data import load, partition
    from .errors import PrivflError
    from .federated import FedAvg, fedavg
    from .leak import report
    from .runtime import device
    from .wire import Clip, Facts, Noise, Plan, Upload

__version__ = "0.1.0"  # the one place; pyproject.toml reads it from here
__all__ = [
    "Clip",
    "Facts",
    "FedAvg",
    "Noise",
    "Plan",
    "PrivflError",
    "Upload",
    "assets",
    "attacks",
    "data",
    "defenses",
    "device",
    "fedavg",
    "federated",
    "load",
    "metrics",
    "models",
    "partition",
    "privacy",
    "report",
    "share",
]
_HOMES = {
    "FedAvg": "federated",
    "Clip": "wire",
    "Facts": "wire",
    "Noise": "wire",
    "Plan": "wire",
    "PrivflError": "errors",
    "Upload": "wire",
    "device": "runtime",
    "fedavg": "federated",
    "load": "data",
    "partition": "data",
    "report": "leak",
    "share": "client",
}
_ROOMS = {room.name for room in iter_modules(__path__)}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        return value
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
