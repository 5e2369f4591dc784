"""A K table checked by simulation: which fixed K is best at a handful of loads, in closed loop and paired.

The closed form knows decode steps alone. Simulated steps mix in prefill, queues and the ends of outputs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.experiment.axes import CONCURRENCY
from sim.experiment.compare import Runs, is_lower_better
from sim.experiment.evaluate import Evaluator
from sim.experiment.k_prices import Tunable
from sim.experiment.k_table import KRange, k_at
from sim.experiment.paired import gain_interval, log_gains
from sim.scenario.arms import Arm
from sim.scenario.cells import Cell, cell_scenarios
from sim.scenario.dump import plain_data
from sim.scenario.load import LoadedScenario, load_mapping

#: Loads between powers of this are left to the closed form.
SPACING = 4
PLAIN, TABLE, ORACLE = "plain", "table", "oracle"


@dataclass(frozen=True, slots=True)
class Judge:
    """How simulated arms are compared.

    Attributes:
        objective: metric that decides.
        replicates: runs of each arm and load.
        tie: share that counts as no difference.
        confidence: of paired intervals.
    """

    objective: str
    replicates: int
    tie: float
    confidence: float


def check_loads(ranges: Sequence[KRange], largest: int) -> tuple[int, ...]:
    """Concurrencies to simulate: powers of 4, the largest batch that fits, and the middle of ranges without any."""
    powers = {SPACING**i for i in range(1 + int(math.log(largest, SPACING) + 1e-9))}
    loads = powers | ({largest} if largest >= SPACING / 2 * max(powers) else set())
    for one in ranges:
        last = min(one.last, largest)
        if one.first <= last and not any(one.first <= load <= last for load in loads):
            loads.add(round(math.sqrt(one.first * last)))
    return tuple(sorted(loads))


def fixed_name(k: int) -> str:
    """Name of the arm with one K."""
    return f"k{k}"


def fixed_arm(case: Tunable, k: int) -> Arm:
    """The arm with one K for every batch; K = 0 keeps the drafter loaded."""
    return case.arm_with(k) if k else case.arm_with(max(1, min(filter(None, case.ks))), [(1, 1, 0)])


def closed_loop(loaded: LoadedScenario, arms: Mapping[str, Arm], loads: Sequence[int], judge: Judge) -> LoadedScenario:
    """The scenario with these arms beside plain decoding, over these concurrencies."""
    data: dict[str, Any] = plain_data(loaded.scenario)
    if data["workload"]["arrivals"]["kind"] != "closed":
        data["workload"] |= {"arrivals": {"kind": "closed", "max_concurrency": loads[0]}, "num_requests": None}
    dumped = {name: arm.model_dump(mode="json") for name, arm in arms.items()}
    breakeven = {"objectives": [judge.objective], "confidence": judge.confidence}
    data |= {"arms": {PLAIN: {}} | dumped, "baseline": PLAIN}
    data["sweep"] = {"replicates": judge.replicates, "vary": {CONCURRENCY: list(loads)}, "breakeven": breakeven}
    found = load_mapping(data, loaded.base_dir)
    return LoadedScenario(found.scenario, found.base_dir, "", (*loaded.notes, *found.notes))


def best_simulated(
    loaded: LoadedScenario, case: Tunable, ranges: Sequence[KRange], loads: Sequence[int], judge: Judge, runs: Evaluator
) -> list[tuple[int, int]]:
    """(load, K) for every load: the table's K, unless another fixed K is better beyond the tie and beyond chance.

    From the table's K the search goes on to neighbours as long as they are better.
    """
    arms = {fixed_name(k): fixed_arm(case, k) for k in case.ks}
    cells = cell_scenarios(closed_loop(loaded, arms, loads, judge).scenario)
    return [
        (load, _best_at(cell, case.ks, k_at(ranges, load), judge, runs))
        for load, cell in zip(loads, cells, strict=True)
    ]


def _best_at(cell: Cell, ks: Sequence[int], start: int, judge: Judge, runs: Evaluator) -> int:
    tried: set[int] = set()
    best = start
    while True:
        at = ks.index(best)
        tried |= {best, *ks[max(0, at - 1) : at + 2]}
        rows = runs.runs([cell], [fixed_name(k) for k in sorted(tried)], range(judge.replicates))
        top = max(sorted(tried), key=lambda k: _mean_log(rows, cell.cell_id, k, judge.objective))
        if top == best:
            break
        best = top
    if not is_better(rows, cell.cell_id, fixed_name(best), fixed_name(start), judge):
        return start
    return next(
        k
        for k in sorted(tried)
        if k == best or not is_better(rows, cell.cell_id, fixed_name(best), fixed_name(k), judge)
    )


def is_better(rows: Runs, cell_id: str, arm: str, other: str, judge: Judge) -> bool:
    """Whether `arm` is better by more than the tie, and its interval excludes no difference."""
    interval = gain_interval(log_gains(rows, cell_id, arm, other, judge.objective), judge.confidence)
    if interval is None or interval.low is None:
        return False
    return interval.low > 1.0 and interval.estimate > 1.0 + judge.tie


def _mean_log(rows: Runs, cell_id: str, k: int, metric: str) -> float:
    sign = -1.0 if is_lower_better(metric) else 1.0
    values = [float(str(row[metric])) for row in rows[cell_id, fixed_name(k)].values()]
    return sign * math.fsum(math.log(value) for value in values) / len(values)
