"""``privfl train`` and ``privfl epsilon``: rounds of federated averaging, and what they spend."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict

import privfl_lite as pf

from .options import COMMON, DEFENSE, Commands, model, plain, positive, settings, some


def add(commands: Commands) -> None:
    p = commands.add(
        train,
        *COMMON,
        DEFENSE,
        model("lenet5"),
        ("--clients", positive, 10, "how many"),
        ("--per-round", positive, None, "clients in a round; all by default"),
        ("--rounds", positive, 20, "how many"),
        ("--split", str, "iid", "iid, shards or dirichlet"),
        ("--alpha", float, 0.5, "of the Dirichlet split"),
        ("--epochs", positive, 1, "local passes over the data"),
        ("--steps", positive, None, "local steps, instead of epochs"),
        ("--batch-size", positive, 10, "local"),
        ("--eta", float, 0.05, "learning rate"),
        ("--momentum", float, 0.0, "of local SGD"),
        ("--share", str, "update", "update or gradient"),
        ("--sampling", str, "fixed", "fixed or poisson"),
        ("--weighting", str, "examples", "in the mean: examples, uniform or fixed"),
        ("--workers", some, 1, "processes that train"),
    )
    p.add_argument("--secure", action="store_true", help="noise from the operating system")
    p.add_argument("--checkpoint", metavar="FILE", help="go on from here after an interruption")
    commands.add(
        epsilon,
        ("--sigma", float, 5.0, "noise multiplier"),
        ("--rate", float, 0.1, "share of clients in a round"),
        ("--rounds", positive, 100, "how many"),
        ("--delta", float, 1e-5, "δ of (ε, δ)-DP"),
        ("--accountant", str, "rdp", "rdp or prv"),
        ("--sampling", str, "poisson", "poisson or fixed"),
    )


def train(args: argparse.Namespace) -> dict:
    """Train by federated averaging, and print the accuracy on held-out images after each round."""
    images = pf.data.load(args.dataset, args.size)
    clients = images.clients(args.clients, args.split, alpha=args.alpha, seed=args.seed)
    run = pf.FedAvg(
        pf.models.build(args.model, images, seed=args.seed),
        clients,
        args.rounds,
        pf.Plan(args.eta, args.epochs, args.steps, args.batch_size, args.momentum),
        test=(images.x_test, images.y_test),
        per_round=args.per_round,
        sampling=args.sampling,
        weighting=args.weighting,
        share=args.share,
        defense=pf.defenses.build(args.defense),
        checkpoint=args.checkpoint,
        seed=args.seed,
        show=not args.quiet,
        secure=args.secure,
        workers=args.workers,
    )
    began, interrupted = time.perf_counter(), False
    try:
        for report in run:
            value = report.epsilon.value
            spent = "" if value is None else f"  ε {value:.3f}"
            print(f"round {report.round:3}  accuracy {report.accuracy:.4f}{spent}")
        print(report.epsilon)
    except KeyboardInterrupt:
        interrupted = True
        print(f"stopped after {len(run.history)} rounds", file=sys.stderr)
    return {
        **settings(args, images),
        "accuracy": [r.accuracy for r in run.history],
        "loss": [r.loss for r in run.history],
        "epsilon": asdict(run.history[-1].epsilon) if run.history else None,
        "interrupted": interrupted,
        "seconds": round(time.perf_counter() - began, 2),
    }


def epsilon(args: argparse.Namespace) -> dict:
    """Privacy spent by noise of multiplier σ over the rounds."""
    asked = (args.sigma, args.rate, args.rounds, args.delta)
    eps = pf.privacy.epsilon(*asked, accountant=args.accountant, sampling=args.sampling)
    how = f"{args.accountant}, {args.sampling} {args.rate:g}"
    near = "add/remove" if args.sampling == "poisson" else "replace"
    print(f"ε = {eps:.3f} (δ = {args.delta:g}, {near}, {how})")
    return {"settings": plain(args), "epsilon": eps, "delta": args.delta, "neighbors": near}
