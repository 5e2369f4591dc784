"""How wrong each input may be before "it pays" becomes "it does not": speed-ups over its range, and flip points."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import ScenarioError
from sim.experiment.compare import LOAD_METRICS, Runs, is_lower_better, verdict
from sim.experiment.evaluate import Evaluator
from sim.experiment.files import csv_bytes, json_bytes, write_bytes
from sim.experiment.flips import Flip, Profile, find_flips
from sim.experiment.inputs_in_doubt import TIMES, Input, Range, Study, at_operating_point, stated_value
from sim.experiment.paired import Gains, as_json, gain_interval, log_gains
from sim.experiment.rounds import HowToRun, Work
from sim.experiment.run import run
from sim.metrics.summary import Row
from sim.scenario.build import set_up
from sim.scenario.cells import Cell, cell_scenarios
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Sweep

Json = dict[str, Any]

NAME, TABLE = "sensitivity.json", "sensitivity.csv"
COLUMNS = (
    "input", "key", "stated", "low", "high", "range_source", "speedup_low", "ci_low_low", "ci_low_high", "speedup_high",
    "ci_high_low", "ci_high_high", "status", "flip", "flip_ci_low", "flip_ci_high", "direction",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What `sensitivity.json` holds, and the results folder it lies in: the operating point as stated."""

    document: Json
    run_dir: Path


class Laboratory:
    """Runs the operating point with one input changed; every run is made once.

    Args:
        loaded: the question; what it varies is left aside.
        study: what is asked.
        runs: makes the runs.
    """

    def __init__(self, loaded: LoadedScenario, study: Study, runs: Evaluator) -> None:
        self._scenario, self._study, self._runs = at_operating_point(loaded.scenario), study, runs
        self._plain_drafts = self._scenario.arms[self._scenario.baseline].speculates

    def gains(self, one: Input, factor: float) -> Gains:
        """Log of speed-up over `min_gain` by replicate, with this input times `factor`.

        Nothing where an arm is saturated and a latency decides: it would grow with the length of the run.
        """
        study, baseline = self._study, self._scenario.baseline
        moves_plain = one.moves_plain or self._plain_drafts
        rows: Runs = {
            ("", study.arm): self._rows(one, factor, study.arm),
            ("", baseline): self._rows(one, factor if moves_plain else 1.0, baseline),
        }
        if is_lower_better(study.objective) and any(row["saturated"] for one in rows.values() for row in one.values()):
            return {}
        found = log_gains(rows, "", study.arm, baseline, study.objective)
        return {replicate: gain - math.log(study.min_gain) for replicate, gain in found.items()}

    def _rows(self, one: Input, factor: float, arm: str) -> Mapping[int, Row]:
        cell = self._cell(one, factor)
        return self._runs.runs([cell], [arm], range(self._study.replicates))[cell.cell_id, arm]

    def _cell(self, one: Input, factor: float) -> Cell:
        value = one.value(self._scenario, factor)
        sweep = Sweep() if factor == 1.0 else Sweep(vary={one.key: (value,)})
        (cell,) = cell_scenarios(self._scenario.model_copy(update={"sweep": sweep}))
        return cell


def sensitivity(loaded: LoadedScenario, study: Study, work: Work) -> Answer:
    """Speed-ups at both ends of every input's range, and where the decision flips.

    Raises:
        ScenarioError: a value that an input cannot have, or a throughput that only repeats the arrival rate.
        RunFailedError, StorageError, Interrupted: as `Evaluator` and `run`.
    """
    scenario = at_operating_point(loaded.scenario)
    if study.objective in LOAD_METRICS and scenario.workload.arrivals.kind != "closed":
        raise ScenarioError(f"{study.objective}: in an open loop both arms serve the offered load; choose a latency")
    with work.workers() as executor:
        laboratory = Laboratory(loaded, study, Evaluator(executor, loaded.base_dir))
        error = set_up(scenario, study.arm, loaded.base_dir).cost.relative_error
        base = laboratory.gains(study.inputs[0], 1.0)
        if not base:
            raise ScenarioError(
                f"{study.objective}: nothing to compare here: no SLO is stated, or a queue is saturated"
            )
        rows = [_about(one, loaded, study, laboratory, error) for one in study.inputs]
    document = _document(loaded, study, base, rows)
    whole = LoadedScenario(_only(loaded, study), loaded.base_dir, "", loaded.notes)
    run_dir = run(whole, work.out_dir, progress=work.progress, how=HowToRun(work.workers))
    write_bytes(run_dir / NAME, json_bytes(document))
    write_bytes(run_dir / TABLE, csv_bytes([_flat(row) for row in rows], COLUMNS))
    return Answer(document, run_dir)


def _only(loaded: LoadedScenario, study: Study) -> Any:
    """The operating point with the arm and its baseline."""
    scenario = at_operating_point(loaded.scenario)
    arms = {name: arm for name, arm in scenario.arms.items() if name in (scenario.baseline, study.arm)}
    sweep = Sweep(replicates=study.replicates)
    return scenario.model_copy(update={"arms": arms, "sweep": sweep})


def _document(loaded: LoadedScenario, study: Study, base: Gains, rows: list[Json]) -> Json:
    interval = gain_interval(base, study.confidence)
    return {
        "arm": study.arm,
        "baseline": loaded.scenario.baseline,
        "objective": study.objective,
        "min_gain": study.min_gain,
        "replicates": study.replicates,
        "confidence": study.confidence,
        "searched": list(study.searched),
        "left_aside": list(loaded.scenario.sweep.vary),
        "speedup": _scaled(as_json(interval), study.min_gain),
        "decision": {"better": "pays", "worse": "does_not_pay"}.get(verdict(interval), "not_resolved"),
        "inputs": rows,
    }


def _about(one: Input, loaded: LoadedScenario, study: Study, laboratory: Laboratory, error: float) -> Json:
    """One row of the tornado."""
    (low, high), source = _range(one, study, error)
    first, last = max(study.searched[0], one.least(loaded.scenario)), min(study.searched[1], one.most)
    profile = Profile(lambda factor: laboratory.gains(one, factor))
    start = {first, last, 1.0, low, high}
    flips = find_flips(profile, [factor for factor in start if first <= factor <= last], study.confidence)
    ends = [gain_interval(laboratory.gains(one, end), study.confidence) for end in (low, high)]
    return {
        "input": one.name,
        "key": one.key,
        "stated": stated_value(loaded.scenario, one),
        "range": [low, high],
        "range_source": source,
        "speedup": [_scaled(as_json(end), study.min_gain) for end in ends],
        "searched": [first, last],
        "status": "flips" if flips else "does_not_flip",
        "flips": [_flip(flip) for flip in flips],
    }


def _range(one: Input, study: Study, error: float) -> tuple[Range, str]:
    """Plausible factors, and where they come from."""
    if one.name in study.ranges:
        return study.ranges[one.name], "stated"
    if one.is_time and error > 0:
        return (1.0 - error, 1.0 + error), f"relative error of the cost profile, {100 * error:.0f} %"
    share = TIMES if one.is_time else one.share
    why = "the cost model states no error; " if one.is_time else ""
    return (1.0 - share, 1.0 + share), f"{why}+-{100 * share:.0f} % by convention"


def _flip(flip: Flip) -> Json:
    return {"factor": flip.factor, "ci_low": flip.ci_low, "ci_high": flip.ci_high, "direction": flip.direction}


def _scaled(interval: Json | None, factor: float) -> Json | None:
    """A ratio over `min_gain` as the ratio itself."""
    if interval is None:
        return None
    ends = ("estimate", "ci_low", "ci_high")
    return interval | {end: None if interval[end] is None else interval[end] * factor for end in ends}


def _flat(row: Json) -> Json:
    """A row of the CSV: the flip nearest to the stated value, where there are several."""
    near: Json = min(row["flips"], key=lambda flip: abs(math.log(flip["factor"])), default={})
    flat = {key: row[key] for key in ("input", "key", "stated", "range_source", "status")}
    flat |= {"low": row["range"][0], "high": row["range"][1]}
    for side, end in zip(("low", "high"), row["speedup"], strict=True):
        found = end or {}
        flat |= {f"speedup_{side}": found.get("estimate"), f"ci_{side}_low": found.get("ci_low")}
        flat |= {f"ci_{side}_high": found.get("ci_high")}
    return flat | {"flip": near.get("factor"), "flip_ci_low": near.get("ci_low")} | {
        "flip_ci_high": near.get("ci_high"), "direction": near.get("direction")
    }  # fmt: skip
