"""What a K table gains over plain decoding and fixed K, and what each loses against the best at every load."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from sim.experiment.compare import Runs, runs_by_arm
from sim.experiment.k_check import ORACLE, PLAIN, TABLE, Judge
from sim.experiment.paired import as_json, gain_interval, log_gains, mean_gains
from sim.metrics.statistics import Interval
from sim.metrics.summary import Row

Json = dict[str, Any]
Verdict = Literal["use_the_table", "do_not_load_a_drafter", "not_resolved"]


def simulated_document(rows: Iterable[Row], judge: Judge) -> Json:
    """Every arm at every load, and over all loads.

    Regret is the share of the objective that an arm loses against the oracle, which knows what will be accepted. It
    picks the best next step, not the best run, so it can be beaten by a little. `regret.csv` has the same load by load,
    and against the best fixed K.

    Args:
        rows: summary rows of the final runs.
        judge: how arms are compared.
    """
    runs = runs_by_arm(rows)
    cells = {cell: int(str(next(iter(table.values()))["max_concurrency"])) for (cell, _), table in runs.items()}
    loads = dict(sorted(cells.items(), key=lambda item: item[1]))
    arms = list(dict.fromkeys(arm for _, arm in runs))
    return {
        "loads": [
            {"concurrency": load, "arms": {arm: _arm(runs, [cell], arm, judge) for arm in arms if arm != PLAIN}}
            for cell, load in loads.items()
        ],
        "over_all": {arm: _arm(runs, list(loads), arm, judge) for arm in arms if arm != PLAIN},
        "replicates": judge.replicates,
        "confidence": judge.confidence,
    }


def _arm(runs: Runs, cells: Sequence[str], arm: str, judge: Judge) -> Json:
    """Gain over plain decoding and over the table, and regret, over these loads together."""

    def against(reference: str) -> Interval | None:
        gains = mean_gains([log_gains(runs, cell, arm, reference, judge.objective) for cell in cells])
        return gain_interval(gains, judge.confidence)

    gain, over_table, regret = against(PLAIN), against(TABLE), against(ORACLE)
    return {
        "speedup": as_json(gain),
        "over_table": None if arm == TABLE else as_json(over_table),
        "regret": None if arm == ORACLE else _lost(regret),
    }


def _lost(gain: Interval | None) -> Json | None:
    """1 - gain, with the ends of the interval exchanged."""
    if gain is None:
        return None
    low, high = (None if end is None else 1.0 - end for end in (gain.high, gain.low))
    return as_json(Interval(1.0 - gain.estimate, low, high, gain.num))


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
