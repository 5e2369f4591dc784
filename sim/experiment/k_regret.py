"""What a K table gains over plain decoding and fixed K, and what each loses against the best at every load."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from sim.experiment.compare import Runs, runs_by_arm
from sim.experiment.k_check import PLAIN, TABLE, Judge
from sim.experiment.paired import Gains, as_json, gain_interval, log_gains, mean_gains
from sim.metrics.statistics import Interval, mean_interval
from sim.metrics.summary import Row

Json = dict[str, Any]
Verdict = Literal["use_the_table", "do_not_load_a_drafter", "not_resolved"]


def simulated_document(rows: Iterable[Row], judge: Judge) -> Json:
    """Every arm at every load, and over all loads.

    Regret is the share of the objective that an arm loses against the best arm that drafts at each load (plain
    decoding needs another deployment, so it is no alternative to a table). That one is chosen on the same runs, which
    overstates the regret a little.

    Args:
        rows: summary rows of the final runs.
        judge: how arms are compared.
    """
    runs = runs_by_arm(rows)
    cells = {cell: int(str(next(iter(table.values()))["max_concurrency"])) for (cell, _), table in runs.items()}
    loads = dict(sorted(cells.items(), key=lambda item: item[1]))
    arms = list(dict.fromkeys(arm for _, arm in runs))
    best = {cell: _best(runs, cell, arms, judge.objective) for cell in loads}
    return {
        "best": {str(load): best[cell] for cell, load in loads.items()},
        "loads": [
            {"concurrency": load, "arms": {arm: _arm(runs, [cell], arm, best, judge) for arm in arms if arm != PLAIN}}
            for cell, load in loads.items()
        ],
        "over_all": {arm: _arm(runs, list(loads), arm, best, judge) for arm in arms if arm != PLAIN},
        "replicates": judge.replicates,
        "confidence": judge.confidence,
    }


def _arm(runs: Runs, cells: Sequence[str], arm: str, best: Mapping[str, str], judge: Judge) -> Json:
    """Gain over plain and over the table's rival, and regret, over these loads together."""

    def against(reference: Mapping[str, str]) -> Gains:
        return mean_gains([log_gains(runs, cell, arm, reference[cell], judge.objective) for cell in cells])

    gain = gain_interval(against(dict.fromkeys(cells, PLAIN)), judge.confidence)
    over_table = gain_interval(against(dict.fromkeys(cells, TABLE)), judge.confidence)
    regret = gain_interval(against(best), judge.confidence)
    return {
        "speedup": as_json(gain),
        "over_table": None if arm == TABLE else as_json(over_table),
        "regret": _lost(regret),
    }


def _lost(gain: Interval | None) -> Json | None:
    """1 - gain, with the ends of the interval exchanged."""
    if gain is None:
        return None
    low, high = (None if end is None else 1.0 - end for end in (gain.high, gain.low))
    return as_json(Interval(1.0 - gain.estimate, low, high, gain.num))


def _best(runs: Runs, cell: str, arms: Sequence[str], metric: str) -> str:
    """The arm with a drafter that is best at a load; gains over plain decoding put times and rates on one scale."""

    def mean(arm: str) -> float:
        gains = log_gains(runs, cell, arm, PLAIN, metric)
        return mean_interval(list(gains.values()), 0.95).estimate if gains else float("-inf")

    return max((arm for arm in arms if arm != PLAIN), key=mean)


def verdict_of(closed_form: Sequence[float], loads: Sequence[Json], tie: float) -> Verdict:
    """Whether to load a drafter at all.

    Args:
        closed_form: speed-ups of the table over plain decoding; what counts without simulations.
        loads: of `simulated_document`; empty without simulations.
        tie: share that counts as no difference.
    """
    if not loads:
        return "use_the_table" if max(closed_form) > 1.0 + tie else "do_not_load_a_drafter"
    intervals = [row["arms"][TABLE]["speedup"] for row in loads]
    if any(one is not None and (one["ci_low"] or 0.0) > 1.0 for one in intervals):
        return "use_the_table"
    if all(one is not None and one["ci_high"] is not None and one["ci_high"] < 1.0 + tie for one in intervals):
        return "do_not_load_a_drafter"
    return "not_resolved"
