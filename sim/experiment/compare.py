"""Paired comparisons of every arm with the baseline, cell by cell: the rows of `compare.csv`."""

import math
from collections.abc import Iterable, Mapping

from sim.metrics.statistics import Interval, paired_ratio
from sim.metrics.summary import Row

_STATS = ("mean", "median", "p99")
_TIMES = ("ttft", "tpot", "itl", "e2el")

#: Metrics that arms are compared by: all are better when higher, but for times and what a token takes.
METRICS = (
    "output_throughput",
    "request_throughput",
    "total_token_throughput",
    "request_goodput",
    "tok_s_user_median",
    *(f"{stat}_{name}_ms" for name in _TIMES for stat in _STATS),
    "usd_per_mtok_output",
)

#: What an open loop prescribes: rates, and the price of GPUs per token of that rate.
LOAD_METRICS = ("output_throughput", "request_throughput", "total_token_throughput", "usd_per_mtok_output")

COMPARE_COLUMNS = (
    "arm", "baseline", "metric", "arm_value", "baseline_value", "speedup", "ci_low", "ci_high", "num_pairs", "verdict",
    "lossless",
)  # fmt: skip

#: (cell, arm) -> replicate -> summary row.
Runs = Mapping[tuple[str, str], Mapping[int, Row]]


def runs_by_arm(rows: Iterable[Row]) -> dict[tuple[str, str], dict[int, Row]]:
    """Summary rows by cell and arm, then by replicate."""
    table: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        key = (str(row["cell_id"]), str(row["arm"]))
        table.setdefault(key, {})[int(str(row["replicate"]))] = row
    return table


def is_lower_better(metric: str) -> bool:
    """Whether less is better: times, money and energy."""
    return metric.endswith("_ms") or metric.startswith(("usd_", "joules_"))


def depends_on_length(metric: str) -> bool:
    """Whether a metric of a saturated engine only tells how long the run was: latencies, and who met their limits."""
    return metric.endswith("_ms") or metric in ("request_goodput", "tok_s_user_median")


def pairs(runs: Runs, cell_id: str, arm: str, baseline: str, metric: str) -> dict[int, tuple[float, float]]:
    """(arm, baseline) values by replicate, where both have one."""
    ours, theirs = runs.get((cell_id, arm), {}), runs.get((cell_id, baseline), {})
    both = {rep: (ours[rep].get(metric), theirs[rep].get(metric)) for rep in sorted(ours) if rep in theirs}
    return {rep: (float(a), float(b)) for rep, (a, b) in both.items() if a is not None and b is not None}


def saturates(runs: Runs, cell_id: str, arm: str) -> bool:
    """Whether the queue of an arm kept growing in most runs of a cell: in a short run it may do so by chance."""
    rows = list(runs.get((cell_id, arm), {}).values())
    return 2 * sum(bool(row["saturated"]) for row in rows) > len(rows)


def is_offered_load(runs: Runs, cell_id: str, arms: Iterable[str], metric: str) -> bool:
    """Whether a throughput only repeats the arrival rate: in an open loop, as long as no arm is saturated.

    Arms then differ by what is in flight at the ends of the window, which says nothing about them.
    """
    arms = list(arms)
    rows = [row for arm in arms for row in runs.get((cell_id, arm), {}).values()]
    is_open = any(row.get("max_concurrency") is None for row in rows)
    return metric in LOAD_METRICS and is_open and not any(saturates(runs, cell_id, arm) for arm in arms)


def speedup(values: Iterable[tuple[float, float]], metric: str, confidence: float) -> Interval | None:
    """How much better the arm is (> 1: better, for rates and times alike); None when a value is not positive."""
    found = [(b, a) if is_lower_better(metric) else (a, b) for a, b in values]
    if not found or not all(0 < x < math.inf for pair in found for x in pair):
        return None
    return paired_ratio([a for a, _ in found], [b for _, b in found], confidence)


def verdict(interval: Interval | None) -> str:
    """`better` or `worse` when the whole interval lies on one side of 1, else `not resolved`."""
    if interval is None or interval.low is None or interval.high is None:
        return "not resolved"
    return "better" if interval.low > 1 else "worse" if interval.high < 1 else "not resolved"


def compare_rows(
    runs: Runs, cells: Iterable[tuple[str, Mapping[str, object]]], arms: Iterable[str], baseline: str, confidence: float
) -> list[dict[str, object]]:
    """One row per cell, arm and metric that both arms have.

    A throughput that only repeats the offered load is never `better` or `worse`.

    Args:
        runs: all finished runs.
        cells: (cell_id, varied fields) in order.
        arms: arms to compare; the baseline itself is left out.
        baseline: what they are compared with.
        confidence: level of the intervals.
    """
    rows = []
    others = [arm for arm in arms if arm != baseline]
    for cell_id, vary in cells:
        head: dict[str, object] = {"cell_id": cell_id, **{f"vary.{key}": value for key, value in vary.items()}}
        for arm in others:
            lossless = next((row.get("lossless") for row in runs.get((cell_id, arm), {}).values()), None)
            for metric in METRICS:
                values = list(pairs(runs, cell_id, arm, baseline, metric).values())
                if values:
                    row = _row(arm, baseline, metric, values, confidence) | {"lossless": lossless}
                    if is_offered_load(runs, cell_id, (arm, baseline), metric):
                        row["verdict"] = "not resolved"
                    rows.append(head | row)
    return rows


def _row(
    arm: str, baseline: str, metric: str, values: list[tuple[float, float]], confidence: float
) -> dict[str, object]:
    interval = speedup(values, metric, confidence)
    return {
        "arm": arm,
        "baseline": baseline,
        "metric": metric,
        "arm_value": math.fsum(a for a, _ in values) / len(values),
        "baseline_value": math.fsum(b for _, b in values) / len(values),
        "speedup": interval.estimate if interval else None,
        "ci_low": interval.low if interval else None,
        "ci_high": interval.high if interval else None,
        "num_pairs": len(values),
        "verdict": verdict(interval),
    }
