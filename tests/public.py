"""Everything that can be called from outside, each with one valid call to go wrong from."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import privfl_lite as pf
from privfl_lite import client_checks, contract, studies

# What is left out, and why
NOT_CALLED = {
    "PrivflError": "an exception",
    "Context": "made by the run for a defense's doors, never by a caller",
    "lpips": "its valid call needs weights that come with no package",
    "require_network": "takes no setting",
    "device": "takes no setting",
    "sources": "takes no setting",
    "cache": "takes no setting",
    "status": "takes no setting",
    "Package": "assets of the package itself",
    "fetch": "would download; privfl fetch is tried on the command line",
    "pack": "assets of the package itself",
    "read_idx_set": "assets of the package itself",
}
ROOMS = {
    "pf": pf,
    "data": pf.data,
    "models": pf.models,
    "wire": pf.wire,
    "defenses": pf.defenses,
    "attacks": pf.attacks,
    "membership": pf.attacks.membership,
    "metrics": pf.metrics,
    "privacy": pf.privacy,
    "leak": pf.leak,
    "studies": studies,
    "client_checks": SimpleNamespace(
        __all__=["d_snr", "d_snr_by_layer", "example_norms"],
        **{name: getattr(client_checks, name) for name in ("d_snr", "d_snr_by_layer")},
        example_norms=client_checks.example_norms,
    ),
    "contract": SimpleNamespace(
        __all__=["check_attack", "check_defense"],
        check_attack=contract.check_attack,
        check_defense=contract.check_defense,
    ),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """A constructor, function or method; ``rules_of`` is what its rules are declared on."""

    path: str
    make: Callable[..., Any]
    rules_of: Any


def calls() -> list[Call]:
    """All of them, by the names under which people import them, each once."""
    found: dict[Any, Call] = {}
    for room, module in ROOMS.items():
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and name not in NOT_CALLED and thing not in found:
                found[thing] = Call(f"{room}.{name}", thing, declared(thing))
                if isinstance(thing, type):
                    found |= {call.path: call for call in _methods(f"{room}.{name}", thing)}
    return list(found.values())


def declared(thing: Any) -> Any:
    """Where the rules stand: a dataclass itself, else a function, unwrapped."""
    if isinstance(thing, type) and dataclasses.is_dataclass(thing):
        return thing
    return inspect.unwrap(thing.__init__ if isinstance(thing, type) else thing)


def _methods(path: str, kind: type) -> Iterator[Call]:
    """Methods that check what they are given, tried on a valid object or on the class."""
    for name, method in vars(kind).items():
        inner = getattr(method, "__func__", method)
        if name != "__init__" and name != "run" and hasattr(inner, "checked"):
            on = kind if isinstance(method, classmethod) else None
            yield Call(f"{path}.{name}", _method(path, name, on), inspect.unwrap(inner))


def _method(path: str, name: str, on: Any) -> Callable[..., Any]:
    def call(**given: Any) -> Any:
        return getattr(on or _owner(path), name)(**given)

    return call


@cache
def _owner(path: str) -> Any:
    room, name = path.split(".")
    return getattr(ROOMS[room], name)(**valid(path))


@cache
def world() -> SimpleNamespace:
    """Small, valid things."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(4, 1, 12, 12, generator=rng), torch.tensor([1, 2, 3, 4])
    net = pf.models.build("lenet", (1, 12, 12), 10)
    color = torch.rand(2, 3, 32, 32, generator=rng)
    upload = pf.share(net, x, y, each=1)
    mixing = torch.eye(4)[:, :3] + 0.1
    oracle = pf.attacks.membership.LabelOracle(net)
    g = pf.models.extractor.load_extractor()
    trained = {n: p + 0.1 for n, p in net.state_dict().items()}
    data = pf.data.Dataset("toy", x, y, x, y, tuple("abcdefghij"), "random")
    return SimpleNamespace(**locals())


def valid(path: str) -> dict[str, Any]:
    """Arguments with which a call works; those that it needs, and no more."""
    return dict(_valid().get(path, {}))


@cache
def _valid() -> dict[str, dict[str, Any]]:
    w = world()
    pair = {"x_hat": w.x, "x": w.x}
    two = {"members": [1.0, 2.0], "nonmembers": [0.0, 1.0]}
    blend = {"encodings": w.x, "coefficients": w.mixing}
    candidates = {"oracle": w.oracle, "x": w.x, "y": w.y}
    found = {"images": w.x, "labels": w.y, "cost": torch.zeros(4)}
    clients = [(w.x, w.y), (w.x, w.y)]
    return {
        "pf.Clip": {"bound": 1.0},
        "pf.Noise": {"std": 1.0},
        "pf.Facts.select": {"names": ()},
        "pf.FedAvg": {"model": w.net, "clients": clients, "rounds": 1},
        "pf.fedavg": {"model": w.net, "clients": clients, "rounds": 1},
        "pf.Upload": {"tensors": w.upload.tensors, "kind": "gradient", "model": w.net, "batch": 1},
        "pf.Upload.__getitem__": {"i": 0},
        "pf.Upload.from_gradients": {"model": w.net, "gradients": [*w.net.parameters()]},
        "pf.Upload.from_update": {
            **{"before": w.net, "after": w.trained, "plan": pf.Plan(), "batch": 4},
        },
        "pf.load": {"name": "mnist"},
        "pf.partition": {"labels": w.y, "clients": 2},
        "pf.report": {
            **{"model": w.net, "sent": w.upload[:1], "attacks": ["closed_form"]},
            **{"evaluations": 1, "show": False},
        },
        "pf.share": {"model": w.net, "x": w.x, "y": w.y},
        "data.Dataset": {f.name: getattr(w.data, f.name) for f in dataclasses.fields(w.data)},
        "data.Dataset.sample": {"n": 2},
        "data.Dataset.clients": {"n": 2},
        "models.Block": {"inp": 2, "out": 2, "stride": 1, "act": torch.nn.ReLU},
        "models.Net": {
            **{"name": "own", "features": torch.nn.Flatten(), "shape": (1, 2, 2)},
            "head": torch.nn.Linear(4, 2),
        },
        "models.Wrapped": {
            **{"net": torch.nn.Sequential(torch.nn.Linear(4, 2)), "name": "own"},
            **{"shape": (1, 2, 2), "head_name": "0"},
        },
        "models.build": {"name": "mlp", "like": (1, 12, 12), "classes": 3},
        "models.built": {"model": w.net, "who": "I"},
        "models.passed": {"net": w.net, "layer": w.net.head, "x": w.x},
        "models.wrap": {"net": w.net},
        "defenses.Chain": {"parts": (pf.defenses.Defense(),)},
        "defenses.build": {"text": "none"},
        "defenses.masked_uploads": {"uploads": w.upload.tensors},
        "defenses.sum_of": {"uploads": [w.upload[0], w.upload[1]]},
        "attacks.fished": {"model": w.net, "target": 1},
        "attacks.feature_of": {"model": w.net, "x": w.x},
        "attacks.fish": {
            **{"ask": lambda net: pf.share(net, w.x, w.y), "model": w.net, "target": 1},
            **{"direction": torch.ones(w.net.last.in_features), "ends": (-9.0, 9.0)},
        },
        "attacks.restored": {"upload": pf.share(pf.attacks.fished(w.net, 1), w.x, w.y)},
        "attacks.remainder": {"upload": pf.share(w.net, w.x, w.y), "known": [w.upload[0]]},
        "attacks.silenced": {"model": w.net},
        "attacks.spoken": {"upload": w.upload[:1], "batch": 1},
        "attacks.Reconstruction": found,
        "attacks.Imprint": {"model": w.net, "edges": torch.tensor([0.0, 0.5])},
        "attacks.Decoder": {"g": w.g, "like": w.color},
        "attacks.align_signs": {"images": w.x},
        "attacks.answer": {"defense": "none"},
        "attacks.assign_by_known": {
            **{"encodings": w.x, "labels": torch.eye(4), "known": w.x},
            "known_labels": torch.arange(4),
        },
        "attacks.build": {"text": "gs"},
        "attacks.coefficients_from_labels": {"labels": torch.eye(4)},
        "attacks.conditioning": {"coefficients": w.mixing},
        "attacks.gauss_newton": {"upload": w.upload[:1], "steps": 1},
        "attacks.infer_label": {"upload": w.upload},
        "attacks.infer_labels": {"upload": w.upload},
        "attacks.informed": {"upload": w.upload[:1], "defense": "none"},
        "attacks.instahide_decode": {**blend, "steps": 2},
        "attacks.misfit": {**blend, "images": w.x[:3]},
        "attacks.mixup_regression": blend,
        "attacks.pair_scores": {"encodings": w.x},
        "attacks.read_key": {"upload": _locked()},
        "attacks.row_quotients": {"g_weight": torch.ones(1, 3, 2), "g_bias": torch.ones(1, 3)},
        "attacks.sign_search": {**blend, "steps": 2, "restarts": 2},
        "attacks.soft_labels": {"upload": w.upload, "images": w.x},
        "attacks.train_decoder": {
            **{"g": w.g, "images": w.color, "encodings": w.color, "steps": 1, "batch": 2},
        },
        "membership.Boundary": {
            **{"scores": torch.zeros(4), "adversarial": w.x, "queries": w.y, "shared": 0},
            "failed": w.y > 9,
        },
        "membership.LabelOracle": {"model": w.net},
        "membership.LabelOracle.__call__": {"x": w.x},
        "membership.boundary_scores": {**candidates, "budget": 60},
        "membership.gap_scores": candidates,
        "membership.likelihood_scores": {"model": w.net, "x": w.x, "y": w.y},
        "membership.loss_scores": {"model": w.net, "x": w.x, "y": w.y},
        "metrics.as_image": {"x_hat": w.x},
        **{
            f"metrics.{n}": pair
            for n in "affine_fit assign compare fedkl_mse fedkl_psnr l2 mse psnr ssim".split()
        },
        "metrics.Identification": {"ranks": w.y, "of": 9},
        "metrics.identify": {"found": w.x, "truth": w.x, "pool": w.x},
        **{f"metrics.{n}": two for n in "auc auc_interval tpr_at_fpr tpr_interval".split()},
        "metrics.bootstrap_interval": {"values": [1.0, 2.0]},
        "metrics.clustered": {"hits": [1, 2], "counts": [3, 3]},
        "metrics.spread": {"values": [1.0, 2.0]},
        "metrics.success_rate": {
            **{"scores": [1.0, 2.0], "threshold": 1.5, "higher_is_better": True},
        },
        "metrics.summary": {"scores": {"mse": torch.ones(2)}},
        "metrics.wilson": {"successes": 1, "n": 3},
        "privacy.Audit": {
            **{"epsilon": 1.0, "right": 1, "guesses": 2, "canaries": 4, "delta": 0.1},
            "confidence": 0.9,
        },
        "privacy.Epsilon": {"value": 1.0},
        "privacy.Gaussian": {"multiplier": 1.0, "place": "upload"},
        "privacy.Pure": {"eps": 1.0},
        "privacy.Training": {"rounds": 1},
        "privacy.account": {"defense": pf.defenses.ModelCloak(), "run": pf.privacy.Training(1)},
        "privacy.analytic_gaussian_delta": {"sigma": 1.0, "eps": 1.0},
        "privacy.analytic_gaussian_epsilon": {"sigma": 1.0},
        "privacy.analytic_gaussian_sigma": {"eps": 1.0, "delta_dp": 1e-5},
        "privacy.audit": {"release": np.asarray, "canaries": 10},
        "privacy.audit_p_value": {
            **{"eps": 1.0, "right": 2, "guesses": 4, "canaries": 8, "delta_dp": 1e-5},
        },
        "privacy.concentrated_epsilon": {"rho": 1.0},
        "privacy.discrete_delta": {"sigma": 1.0, "eps": 1.0},
        "privacy.discrete_gaussian": {"sigma": 1.0},
        "privacy.discrete_release": {
            **{"rows": np.ones((2, 2)), "clip": 1.0, "sigma": 1.0, "grid": 0.1},
        },
        "privacy.epsilon": {"sigma": 5.0, "rate": 0.1, "rounds": 10},
        "privacy.gaussian_eps": {"sigma": 5.0, "delta_dp": 1e-5},
        "privacy.gaussian_sigma": {"eps": 0.5, "delta_dp": 1e-5},
        "privacy.prior_bound": {"hits": 1, "tries": 10},
        "privacy.epsilon_of_attack": {"hits": 9, "tries": 10, "kappa": 0.1},
        "privacy.success_bound": {"kappa": 0.1, "sigma": 1.0},
        "privacy.success_bound_of_curve": {"kappa": 0.1, "curve": [(1.0, 1e-5)]},
        "leak.Attempt": {"attack": "gs", "outcome": "not tried", "says": "nothing"},
        "leak.LeakReport": _report(),
        "leak.LeakReport.save": {"path": Path(tempfile.mkdtemp(), "leak.html")},
        "studies.Study": {
            **{"name": "toy/study", "about": "none", "settings": lambda profile: {}},
            **{"cells": lambda settings: [], "compute": lambda settings, cell: {}},
        },
        "studies.Study.run": {"show": False},
        "client_checks.d_snr": {"model": w.net, "x": w.x, "y": w.y},
        "client_checks.d_snr_by_layer": {"model": w.net, "x": w.x, "y": w.y},
        "client_checks.example_norms": {"model": w.net, "x": w.x, "y": w.y},
        "contract.check_attack": {"attack": pf.attacks.ClosedForm(), "upload": _flat()},
        "contract.check_defense": {"defense": pf.defenses.Prune(0.5), "federated": False},
    }


@cache
def _report() -> dict[str, Any]:
    """The fields of a leak report."""
    w = world()
    made = pf.report(w.net, w.upload[:1], attacks=["closed_form"], evaluations=1, show=False)
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}


@cache
def _locked() -> pf.Upload:
    """Of a network whose lock is on the wire."""
    w = world()
    return pf.share(w.net, w.x[:1], w.y[:1], pf.defenses.FedKL(8, seed=1, share_lock=True))


@cache
def _flat() -> pf.Upload:
    """Of a network that begins with a fully connected layer."""
    w = world()
    return pf.share(pf.models.build("mlp", (1, 12, 12), 10), w.x[:2], w.y[:2], each=1)
