"""Where our time goes: which operators of PyTorch a run calls, how often, and what they take."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile

from .measure import Record, Run, rounded

SHOWN = 4  # operators


def where_time_goes(work: Run, units: int) -> Record:
    """Operators called for a unit of work, and the shares of the ones that take most of the time.

    Shares are of the CPU time inside operators; what Python takes between them is not in it, so
    many calls for little work mean that most of the time is the fixed cost of calling.
    """
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    table = [e for e in seen.key_averages() if e.key.startswith(("aten::", "mkldnn::"))]
    total = sum(e.self_cpu_time_total for e in table)
    most = sorted(table, key=lambda e: -e.self_cpu_time_total)[:SHOWN]
    return {
        "calls": rounded(sum(e.count for e in table) / units),
        "shares": {e.key.partition("::")[2]: rounded(e.self_cpu_time_total / total) for e in most},
    }
