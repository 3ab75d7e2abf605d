"""privfl_lite: how federated learning leaks private data through gradients, and ways to stop it.

Data walks in one direction: ``data`` -> ``models`` -> ``client`` and ``federated``, with
``defenses`` at four doors -> ``wire`` -> ``attacks`` -> ``metrics``. Nothing imports backwards.
"""

from . import assets, attacks, data, defenses, federated, metrics, models, privacy
from .client import Plan
from .data import load, partition
from .federated import FedAvg, fedavg
from .runtime import PrivflError, device
from .wire import Upload, share

__version__ = "0.1.0"
__all__ = [
    "FedAvg",
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
    "share",
]
