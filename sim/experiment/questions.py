"""The three questions "up to where does it pay": at equal step batch, equal concurrency and equal request rate.

They differ because the arms run at different batch sizes when load is held equal in another way
(docs/background/statistics.md, "Three questions").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.errors import ScenarioError
from sim.experiment.answers import closed_forms
from sim.experiment.axes import AXES, Axis, first_sweep
from sim.experiment.compare import LOAD_METRICS
from sim.experiment.evaluate import Evaluator
from sim.experiment.executor import Serial
from sim.experiment.explain import decode_context
from sim.experiment.results import load
from sim.experiment.rounds import HowToRun, Work
from sim.experiment.run import find_unfinished, run
from sim.experiment.search import refine
from sim.scenario.cells import cell_scenarios
from sim.scenario.defaults import OPEN_LOOP_OBJECTIVES
from sim.scenario.dump import plain_data
from sim.scenario.load import LoadedScenario, load_mapping

Json = dict[str, Any]

#: Share of the plain arm's capacity up to which request rates are tried; beyond it queues only grow.
RATE_RANGE = (0.1, 0.95)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one search found: where its results lie, and its `breakeven.json`."""

    axis: str
    run_dir: Path
    document: Json


@dataclass(frozen=True, slots=True)
class Search:
    """How to search.

    Attributes:
        work: where and how simulations run.
        settings: keys of `sweep.breakeven` that the user stated.
        replicates: of the first round; None = the scenario's.
        resume: take up the latest unfinished search of the same question, if there is one.
    """

    work: Work
    settings: Mapping[str, Any]
    replicates: int | None
    resume: bool = False


def search(loaded: LoadedScenario, axis: Axis, limits: tuple[float, float] | None, how: Search) -> Answer:
    """Look for break-even points along one axis.

    Request rates without limits are tried up to what one run of the baseline with many users delivers.

    Raises:
        ScenarioError: the axis does not fit the scenario.
        ResultsError, StorageError, Interrupted: as `run`.
    """
    scenario = loaded.scenario
    if len(scenario.arms) < 2:
        raise ScenarioError(f"nothing to compare with {scenario.baseline}: no other arm is left")
    spec = scenario.sweep.breakeven.model_dump() if scenario.sweep.breakeven is not None else {}
    if axis.name == "request_rate" and "objectives" not in how.settings:
        spec["objectives"] = OPEN_LOOP_OBJECTIVES
    sweep: Json = {"breakeven": spec | dict(how.settings)}
    sweep |= {} if how.replicates is None else {"replicates": how.replicates}
    if axis.name == "request_rate" and limits is None:
        limits = _rates_up_to(_busy_throughput(loaded))
    begun = first_sweep(loaded, axis, limits, sweep)
    unfinished = find_unfinished(begun, how.work.out_dir) if how.resume else None
    rounds = HowToRun(how.work.workers, refine, resume=unfinished)
    run_dir = run(begun, how.work.out_dir, progress=how.work.progress, how=rounds)
    return Answer(axis.name, run_dir, load(run_dir).breakeven())


def rate_range(closed: Answer) -> tuple[float, float]:
    """Request rates worth trying, from the baseline's highest throughput in a closed loop."""
    rows = load(closed.run_dir).document()["summary"]
    return _rates_up_to(max(float(row["request_throughput"]) for row in rows if row["is_baseline"]))


def _rates_up_to(capacity: float) -> tuple[float, float]:
    low, high = RATE_RANGE
    return float(f"{low * capacity:.3g}"), float(f"{high * capacity:.3g}")


def _busy_throughput(loaded: LoadedScenario) -> float:
    """Requests per second of the baseline with as many users as are tried at most: one run."""
    data = plain_data(loaded.scenario)
    data["workload"]["arrivals"] = {"kind": "closed", "max_concurrency": AXES["concurrency"].high}
    data["sweep"] |= {"vary": {}, "combine": "grid", "breakeven": None}
    scenario = load_mapping(data, loaded.base_dir).scenario
    (cell,) = cell_scenarios(scenario)
    runs = Evaluator(Serial(), loaded.base_dir).runs([cell], [scenario.baseline], [0])
    return float(str(runs[cell.cell_id, scenario.baseline][0]["request_throughput"]))


def equal_batch(loaded: LoadedScenario) -> Json:
    """The closed forms at the context that `explain` takes: no queue, no prefill, no simulation."""
    documents, _ = closed_forms(loaded.scenario, loaded.base_dir, decode_context(loaded))
    return documents


def all_questions(loaded: LoadedScenario, limits: tuple[float, float] | None, how: Search) -> tuple[Json, list[Answer]]:
    """Equal step batch, equal concurrency, equal request rate.

    Args:
        loaded: the question.
        limits: range of concurrencies.
        how: how to search; at an equal rate, stated objectives that an open loop prescribes are left out.

    Returns:
        The closed forms by arm, and the answers of the two searches.
    """
    closed = search(loaded, AXES["concurrency"], limits, how)
    settings = {key: value for key, value in how.settings.items() if key != "objectives"}
    telling: Sequence[str] = [name for name in how.settings.get("objectives", ()) if name not in LOAD_METRICS]
    settings |= {"objectives": telling} if telling else {}
    opened = search(loaded, AXES["request_rate"], rate_range(closed), replace(how, settings=settings))
    return equal_batch(loaded), [closed, opened]
