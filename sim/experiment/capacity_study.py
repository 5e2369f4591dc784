"""`specsim capacity`: the load that each arm carries within an SLO, and the fleets for a given load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sim.experiment.capacity_document import capacity_document, fleet_document
from sim.experiment.capacity_search import (
    MEASURED,
    Rough,
    bracketed,
    enough_requests,
    first_loads,
    narrower,
    points,
)
from sim.experiment.capacity_setting import Setting
from sim.experiment.carried import Carried, Point, carried
from sim.experiment.compare import runs_by_arm
from sim.experiment.evaluate import Evaluator
from sim.experiment.files import json_bytes, write_bytes
from sim.experiment.fleet import Fleet, smallest_fleet
from sim.experiment.results import load as load_results
from sim.experiment.rounds import HowToRun, Work
from sim.experiment.run import run
from sim.scenario.defaults import OPEN_LOOP_OBJECTIVES

Json = dict[str, Any]
FILE = "capacity.json"


@dataclass(frozen=True, slots=True)
class Study:
    """The answer: the results folder of the loads that were tried, with `capacity.json` in it, and its content."""

    run_dir: Path
    document: Json


def study(setting: Setting, how: Work, load: float | None = None) -> Study:
    """Find what every arm carries and, for a given load, how many replicas.

    Args:
        setting: the question.
        how: where and how to run.
        load: to be carried by a fleet.

    Raises:
        ScenarioError, CapacityError: the scenario is wrong, or an arm does not fit.
        RunFailedError: a run that the search cannot do without failed.
        ResultsError, StorageError, Interrupted: as `run`.
    """
    arms = tuple(setting.loaded.scenario.arms)
    with how.workers() as executor:
        evaluator = Evaluator(executor, setting.loaded.base_dir)
        rough = {arm: bracketed(setting, evaluator, arm) for arm in arms}
    serving = [arm for arm in arms if rough[arm].low]
    run_dir = _sweep(setting, how, rough, serving)
    tested = _tested(setting, run_dir, arms)
    found = {arm: carried(tested[arm], setting.limits, setting.confidence) for arm in serving}
    document = capacity_document(setting, rough, found, tested)
    document["notes"] = _notes(setting, tested)
    if load is not None:
        fleets = _fleets(setting, how, load, rough, found)
        document["fleet"] = fleet_document(setting, load, fleets, found)
    write_bytes(run_dir / FILE, json_bytes(document))
    return Study(run_dir, document)


def _sweep(setting: Setting, how: Work, rough: Mapping[str, Rough], serving: Sequence[str]) -> Path:
    """The results folder: loads that all arms share, narrowed in rounds; an all but idle server when no arm serves."""
    loads = first_loads(rough[arm] for arm in serving)
    if not loads:
        alone = [float(str(one.alone["mean_e2el_ms"])) for one in rough.values()]
        loads = [1.0 if setting.axis.whole else 100.0 / max(alone)]
    requests = setting.num_requests(enough_requests(one.in_system for one in rough.values()), max(loads))
    objectives = [name for name in OPEN_LOOP_OBJECTIVES if not setting.axis.whole] or ["output_throughput"]
    sweep = {"replicates": setting.replicates, "breakeven": {"objectives": objectives}}
    begun = setting.axis.varied(setting.loaded, loads, num_requests=requests, sweep=sweep)
    rounds = HowToRun(how.workers, partial(narrower, setting, serving))
    return run(begun, how.out_dir, progress=how.progress, how=rounds)


def _tested(setting: Setting, run_dir: Path, arms: Sequence[str]) -> dict[str, list[Point]]:
    """The tested loads of every arm with its rows, from the results folder."""
    rows = load_results(run_dir).document()["summary"]
    cells = dict.fromkeys((str(row["cell_id"]), float(row[f"vary.{setting.axis.key}"])) for row in rows)
    runs = runs_by_arm(rows)
    return {arm: points(setting, cells, runs, arm) for arm in arms}


def _fleets(
    setting: Setting, how: Work, load: float, rough: Mapping[str, Rough], found: Mapping[str, Carried]
) -> dict[str, Fleet]:
    fleets = {}
    with how.workers() as executor:
        evaluator = Evaluator(executor, setting.loaded.base_dir)
        for arm, one in found.items():
            if one.interval is not None:
                capacity, held = one.interval.estimate, rough[arm].in_system
                fleets[arm] = smallest_fleet(setting, evaluator, arm, load, capacity, held)
    return fleets


def _notes(setting: Setting, tested: Mapping[str, Sequence[Point]]) -> list[str]:
    """What a reader of the numbers has to know."""
    measured = [
        int(str(row["num_measured"])) for found in tested.values() for _, rows in found for row in rows.values()
    ]
    notes = list(setting.loaded.notes)
    if measured and min(measured) < MEASURED:
        notes.append(
            f"as few as {min(measured)} requests were measured in a run: the {100 * setting.limits.share:g} % point "
            f"rests on fewer than {MEASURED}; raise workload.num_requests"
        )
    stated = setting.loaded.scenario.workload.arrivals.kind
    if stated != setting.axis.arrivals["kind"]:
        notes.append(f"arrivals: {stated} replaced by {setting.axis.arrivals['kind']}")
    return notes
