"""Figures of the chapter "From one machine to many", from the recorded runs on Flower.

``make flower-demo`` plays the runs, and ``scripts/flower_demo.py --record`` stored them: commands,
what the tap printed, and the weights that both nodes of the deployment sent back in round 1.
"""

from __future__ import annotations

import json
import re
import textwrap
from functools import lru_cache
from typing import Any, cast

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ... import attacks, disk, models, stored
from ...batches import Data
from ...client import share
from ...data import Dataset, load
from ...runtime import choose
from ...wire import Plan, Upload
from ..figures import COLORS, show_image

PLAN = Plan(eta=0.1, batch_size=5)
NODES, IMAGES, CLIENTS = 2, 12, 333
LEVEL = 1 / 255  # an image is exact if every pixel is right to less than a gray level
READINGS = ("the weights as they came", "their change", "the mean change of both nodes")
GROUPS, SUMS = 3, (1, 2, 4, 8, 16, 32, 64)


# What both sides know: the same as in examples/flower/example/task.py (a test compares)


@lru_cache
def digits() -> Dataset:
    return load("mnist", size=14)


@lru_cache
def held() -> list[Data]:
    return digits().clients(CLIENTS, "iid", IMAGES, seed=0)


def model_fn() -> models.Net:
    return models.build("mlp", digits(), seed=3)


def data_fn(client: int) -> Data:
    return held()[client % CLIENTS]


# What was recorded


@lru_cache
def record() -> dict[str, Any]:
    """Date, versions, and each run: its command, what the tap printed, its status and seconds."""
    path = stored.find("one-to-many/recorded.json")
    return disk.read_record(path, "it comes with the package; install it again")


def show(name: str) -> None:
    """The command of a recorded run and what was printed, in lines that fit a page."""
    run = record()["runs"][choose("recorded run", name, record()["runs"])]
    for line in (f"$ {run['command']}", *run["printed"], f"the run is {run['status']}"):
        print(textwrap.fill(line, 78, subsequent_indent="    ", break_on_hyphens=False))


def about() -> None:
    """When and with what the runs were recorded."""
    made = record()
    versions = ", ".join(f"{k} {v}" for k, v in made["versions"].items())
    print(textwrap.fill(f"# {made['date'][:10]}, {versions}", 78, subsequent_indent="# "))


def reply(defense: str, client: int) -> dict[str, Tensor]:
    """The weights that a node of the deployment sent back in round 1, by name."""
    path = stored.find(f"one-to-many/{defense}-client-{client}.safetensors")
    return cast(dict[str, Tensor], stored.read_tensors(path))


# What can be read


def read_as(defense: str, reading: str) -> Upload:
    """The first node's reply (or the mean of both) as an upload, in one of three readings."""
    choose("reading", reading, READINGS)
    net, (first, second) = model_fn(), (reply(defense, client) for client in range(NODES))
    if reading == READINGS[0]:
        return Upload.from_gradients(net, first, batch=IMAGES)
    if reading == READINGS[1]:
        return Upload.from_update(net, first, PLAN, IMAGES)
    mean = {n: (t + second[n]) / 2 for n, t in first.items()}
    return Upload.from_update(net, mean, PLAN, NODES * IMAGES)


def exact(found: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """For each image of x the nearest that was found, and whether no pixel is a gray level off."""
    nearest = found[torch.cdist(x.flatten(1), found.flatten(1)).argmin(1)]
    return nearest, (nearest - x).abs().flatten(1).amax(1) < LEVEL


def rows(ax: Any, x: Tensor, upload: Upload) -> int:
    """Private images above, the nearest found below, exact ones framed; how many are exact."""
    nearest, good = exact(attacks.ClosedForm().run(upload).images, x)
    for i, (image, near) in enumerate(zip(x, nearest, strict=True)):
        show_image(ax[0][i], image)
        show_image(ax[1][i], near)
        for side in ax[1][i].spines.values():
            side.set(visible=bool(good[i]), color=COLORS["attack"], linewidth=3)
    return int(good.sum())


def node(client: int, defense: str = "none") -> tuple[Tensor, Upload]:
    """A node's images, and the change of the weights that it sent."""
    return data_fn(client)[0], Upload.from_update(model_fn(), reply(defense, client), PLAN, IMAGES)


def hook() -> Figure:
    """Both nodes of the deployment: six images each, and what the server reads of them."""
    fig, axes = plt.subplots(4, 6, figsize=(5.2, 4.2))
    for client in range(NODES):
        x, upload = node(client)
        _, good = exact(attacks.ClosedForm().run(upload).images, x)
        x = x[good.int().argsort(descending=True, stable=True)[:6]]
        rows(axes[2 * client : 2 * client + 2], x, upload)
        axes[2 * client][0].set_ylabel(f"node {client}\nholds", rotation=0, ha="right")
        axes[2 * client + 1][0].set_ylabel(
            "server\nreads", rotation=0, ha="right", color=COLORS["attack"]
        )
    return fig


def reading(defense: str, read: str) -> Figure:
    """The twelve images of the first node, and what is found in its reply, read so."""
    half, count, x = IMAGES // 2, 0, data_fn(0)[0]
    fig, axes = plt.subplots(4, half, figsize=(4.4, 3.3))
    for k in (0, 1):
        part = x[half * k : half * (k + 1)]
        count += rows(axes[2 * k : 2 * k + 2], part, read_as(defense, read))
    fig.suptitle(f"{count} of {IMAGES} exact", color=COLORS["attack"], fontsize=11)
    return fig


def words(defense: str, read: str) -> str:
    """What ``reading`` shows, for who does not see it."""
    found = attacks.ClosedForm().run(read_as(defense, read)).images
    count = int(exact(found, data_fn(0)[0])[1].sum())
    return f"defense {defense}, read as {read}: {count} of the first node's {IMAGES} digits exact"


@lru_cache
def in_sums() -> dict[int, list[int]]:
    """For each number of clients in a sum: how many images of the group are exact, by group."""
    net, found = model_fn(), {}
    sent = [share(net, *data_fn(c), plan=PLAN).tensors for c in range(max(SUMS) * GROUPS)]
    for n in SUMS:
        counts = []
        for group in range(GROUPS):
            who = range(group * max(SUMS), group * max(SUMS) + n)
            mean = {t: torch.stack([sent[c][t] for c in who]).mean(0) for t in sent[0]}
            upload = Upload(mean, "update", net, n * IMAGES, PLAN.mode, PLAN)
            x = torch.cat([data_fn(c)[0] for c in who])
            counts.append(int(exact(attacks.ClosedForm().run(upload).images, x)[1].sum()))
        found[n] = counts
    return found


def sums() -> Figure:
    """Exact images against the number of clients in the sum."""
    fig, ax = plt.subplots(figsize=(5.2, 2.8))
    counts = in_sums()
    for n, values in counts.items():
        ax.plot([n] * len(values), values, "o", color=COLORS["light"], ms=5)
    means = [sum(v) / len(v) for v in counts.values()]
    ax.plot(list(counts), means, color=COLORS["attack"], lw=2)
    ax.set(xscale="log", xlabel="clients in the sum, 12 images each", ylabel="images read exactly")
    ax.set_xticks(list(counts), [str(n) for n in counts])
    ax.minorticks_off()
    ax.set_ylim(-0.4, None)
    return fig


def throughput() -> list[dict[str, Any]]:
    """Rounds per second in process and in Flower's simulation, for all rows that are stored."""
    held = json.loads(stored.find("benchmark.json").read_text(encoding="utf-8"))["rows"]
    found = []
    for row in held.values():
        if row["against"] == "Flower":
            per = row["rounds_per_second"]
            [(clients, net)] = re.findall(r"FedAvg, ([\d,]+) clients.*, (\w+), two", row["work"])
            count = int(clients.replace(",", ""))
            entry = {"clients and network": f"{clients}, {net}", "in process": per["ours"]}
            entry |= {"Flower": per["peer"], "ratio": row["value"]}
            entry |= {"added": 1000 * (1 / per["peer"] - 1 / per["ours"]) / count}
            found.append((count, entry | {"load": row["load"]}))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def equal() -> list[dict[str, Any]]:
    """The same run in ``FedAvg`` and over Flower's messages: how far apart the models end."""
    return [
        {
            "defense": row["defense"],
            "clients": row["clients"],
            "moved by": row["moved"],
            "apart by": row["apart"],
            "ε of both": row["epsilon"][-1].partition(" (")[0].partition(":")[0],
        }
        for row in record()["equal"]
        if row["same epsilon"]
    ]
