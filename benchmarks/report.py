"""What a stored run says: the table in README.md, the plots, and the summary in the package.

python -m benchmarks.report         writes all three anew from results.json
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from . import growth
from .measure import Record, rounded
from .rows import ROWS, Row

HERE = Path(__file__).parent
RESULTS, README = HERE / "results.json", HERE / "README.md"
SUMMARY = HERE.parent / "privfl_lite" / "results" / "benchmark.json"
MARKS = "<!-- measured: python -m benchmarks.report writes this -->", "<!-- end -->"


def number(value: float, kind: str) -> str:
    """A ratio, or seconds, with three digits at most."""
    return f"{value:.2f} s" if kind == "seconds" else f"{value:.3g}×"


def verdict(row: Row, record: Record) -> str:
    """Reached or missed, and by how much."""
    value = record["value"]
    if value is None:
        return f"not measured: {row.against} is not installed, or no turn counts"
    if row.reached(value):
        return "reached"
    return "**missed**, and slower" if row.kind == "peer / ours" and value < 1 else "**missed**"


def line(name: str, record: Record) -> str:
    """One row for the eye, while a run goes on."""
    kind, value = ROWS[name].kind, record["value"]
    return "no value " if value is None else f"{number(value, kind)} "


def cells(name: str, record: Record) -> list[str]:
    """A row of the table."""
    row, value = ROWS[name], record["value"]
    sign = "≥" if row.kind == "peer / ours" else "≤"
    measured, between = "–", "–"
    if value is not None:
        measured = number(value, row.kind)
        between = " – ".join(number(q, row.kind) for q in record["quartiles"])
    against = {"peer / ours": f"{row.against} / ours", "seconds": "ours alone"}
    memory = record.get("memory_mb", {})
    mb = " / ".join("–" if memory.get(s) is None else f"{memory[s]}" for s in ("ours", "peer"))
    return [
        row.work,
        against.get(row.kind, f"ours / {row.against}"),
        f"{sign} {number(row.aim, row.kind)}",
        measured,
        between,
        str(record["repeats"]),
        mb if memory else "–",
        f"{record['load']:.1f}",
        verdict(row, record),
    ]


def table(run: Record) -> str:
    """All rows of a run, in Markdown."""
    head = ["work", "ratio", "aim", "measured", "quartiles", "turns", "peak MB, ours / other"]
    head += ["load", "the aim is"]
    lines = [head, ["---"] * len(head)]
    lines += [cells(name, run["rows"][name]) for name in ROWS if name in run["rows"]]
    return "\n".join(f"| {' | '.join(cell)} |" for cell in lines)


def balance(run: Record) -> str:
    """What is lost and what is won, in words."""
    lost, missed, won, unknown = [], [], [], []
    for name, row in ROWS.items():
        record = run["rows"].get(name)
        if record is None or record["value"] is None:
            unknown.append(row.work)
            continue
        text = f"{row.work} ({number(record['value'], row.kind)})"
        if row.reached(record["value"]):
            won.append(text)
        elif row.kind == "peer / ours" and record["value"] < 1:
            lost.append(f"{text}, against {row.against}")
        else:
            missed.append(text)
    parts = {
        "Slower than the other side": lost,
        "Short of the aim": missed,
        "Aim reached": won,
        "Not measured in this run": unknown,
    }
    return "\n".join(f"* **{k}:** {'; '.join(v) if v else 'none'}." for k, v in parts.items())


def arrivals(run: Record) -> str:
    """How many of the searches until 30 dB arrive, and in how many evaluations."""
    lines = []
    for name in ("digit", "digits-32"):
        record = run["rows"].get(name, {})
        for side, counts in record.get("evaluations", {}).items():
            there = record["reached"][side]
            got, of = record.get("arrived", {}).get(side) or (sum(there), len(there))
            who = "ours" if side == "ours" else ROWS[name].against
            lines.append(
                f"* {ROWS[name].work}, {who}: {got} of {of} arrive, "
                f"evaluations {', '.join(map(str, sorted(counts)))}."
            )
    return "\n".join(lines)


def where(run: Record) -> str:
    """Which operators take our time, for every row that was profiled."""
    lines = ["| work, ours | unit | calls of operators | most of their time |", "|---|---|---|---|"]
    for name, row in ROWS.items():
        if seen := run["rows"].get(name, {}).get("where"):
            shares = ", ".join(f"`{op}` {share:.0%}" for op, share in seen["shares"].items())
            lines.append(f"| {row.work} | {row.unit} | {seen['calls']:,.0f} | {shares} |")
    return "\n".join(lines)


def others(run: Record) -> str:
    """Which rows were measured later, and in what circumstances."""
    runs: dict[str, list[str]] = {}
    for name, record in run["rows"].items():
        if own := record.get("run"):
            of = f"{own['date'][:10]}, commit `{own['commit'][:10]}`"
            of += " with uncommitted changes" if own["uncommitted"] else ""
            of += f", load before: {', '.join(map(str, own['load_before']))}"
            runs.setdefault(of, []).append(f"`{name}` ({ROWS[name].work})")
    return "".join(f" **Of another run** ({of}): {'; '.join(n)}." for of, n in runs.items())


def rates(record: Record) -> dict[str, float]:
    """Rounds per second of each side, from the median of its rounds."""
    return {who: rounded(1 / statistics.median(taken)) for who, taken in record["seconds"].items()}


def throughput(run: Record) -> str:
    """Rounds per second and bytes of a round, in process and in Flower's simulation."""
    head = ["work", "rounds a second, ours", "Flower", "MB a round, ours", "Flower"]
    lines = [head, ["---"] * len(head)]
    for name, record in run["rows"].items():
        if ROWS[name].against != "Flower":
            continue
        per = [(rates(record), 1.0), (record.get("bytes", {}), 1e6)]
        told = [
            f"{v[who] / k:.3g}" if who in v else "–" for v, k in per for who in ("ours", "peer")
        ]
        lines.append([ROWS[name].work, *told])
    return "\n".join(f"| {' | '.join(cell)} |" for cell in lines)


def measured_text(run: Record) -> str:
    """All that README.md says of the run."""
    machine, versions = run["machine"], run["versions"]
    peers = [f"{n} {versions[n] or 'not installed'}" for n in ("breaching", "flwr")]
    before, after = (", ".join(map(str, run[k])) for k in ("load_before", "load_after"))
    dirty = " with uncommitted changes" if run["uncommitted"] else ""
    about = (
        f"Run of {run['date'][:10]}, commit `{run['commit'][:10]}`{dirty}, in "
        f"{run['seconds'] / 60:.0f} minutes, on {machine['cores']} cores of {machine['cpu']}; "
        f"Python {versions['python']}, torch {versions['torch']}, {', '.join(peers)}. "
        f"Load before: {before}; after: {after}."
    )
    if len(run["rows"]) < len(ROWS):
        about += f" **Unfinished: {len(run['rows'])} of {len(ROWS)} rows.**"
    about += others(run)
    parts = [about, table(run), balance(run), "Throughput:", throughput(run)]
    parts += ["Searches until 30 dB:", arrivals(run)]
    return "\n\n".join([*parts, "Where our time goes, inside operators of PyTorch:", where(run)])


def readme(text: str, run: Record) -> str:
    """README.md with what this run measured."""
    head, _, rest = text.partition(MARKS[0])
    _, _, tail = rest.partition(MARKS[1])
    return f"{head}{MARKS[0]}\n\n{measured_text(run)}\n\n{MARKS[1]}{tail}"


def summary(run: Record) -> Record:
    """What the package carries, for texts that quote a ratio."""
    keys = ("date", "commit", "machine", "versions", "load_before", "load_after")
    rows = {}
    for name, record in run["rows"].items():
        row, own = ROWS[name], ("value", "quartiles", "repeats")
        rows[name] = {"work": row.work, "against": row.against, "kind": row.kind, "aim": row.aim}
        rows[name] |= {key: record[key] for key in own}
        if row.against == "Flower":
            rows[name] |= {"rounds_per_second": rates(record), "load": record["load"]}
            rows[name] |= {key: record[key] for key in ("bytes", "run") if key in record}
    return {key: run[key] for key in keys} | {"rows": rows}


def write_all(run: Record) -> None:
    """README, plots, and the package's summary."""
    README.write_text(readme(README.read_text(encoding="utf-8"), run), encoding="utf-8")
    text = json.dumps(summary(run), indent=1, ensure_ascii=False)
    SUMMARY.write_text(text + "\n", encoding="utf-8")
    growth.plot(run["growth"])


if __name__ == "__main__":
    write_all(json.loads(RESULTS.read_text(encoding="utf-8")))
