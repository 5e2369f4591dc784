"""Everything that an experiment will run, laid out and counted before it starts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sim.errors import ScenarioError
from sim.experiment.inputs import copy_inputs
from sim.experiment.store import RunFolder, check_slug
from sim.experiment.task import Task
from sim.rng import Streams
from sim.scenario.cells import Cell, cell_scenarios, num_cells
from sim.scenario.lint import broken_arms
from sim.scenario.schema import Scenario
from sim.scenario.suggestions import no_such_arm

#: What a run costs, for the estimate before a sweep: CPU seconds per request, and bytes it leaves per request and run.
#: From `bench_sweep.py` (about 4,500 requests per CPU-second) and the files of the shipped scenarios: rough.
SECONDS_PER_REQUEST, SECONDS_PER_RUN = 2e-4, 0.02
BYTES_PER_REQUEST, BYTES_PER_RUN = 60, 30_000


class Shard(NamedTuple):
    """Part `part` of `parts` of a sweep, counted from 1: every parts-th cell, so that all parts are alike."""

    part: int
    parts: int

    def takes(self, cell: int) -> bool:
        """Whether this part holds the cell with this number."""
        return cell % self.parts == self.part - 1


WHOLE = Shard(1, 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will be run.

    Attributes:
        scenario: narrowed to the chosen arms and replicates, files copied.
        base_dir: where its file names start.
        cells: the grid, or this shard's part of it.
        tasks: one per cell, arm and replicate.
        shard: which part of the sweep this is.
    """

    scenario: Scenario
    base_dir: Path
    cells: tuple[Cell, ...]
    tasks: tuple[Task, ...]
    shard: Shard = WHOLE


class Estimate(NamedTuple):
    """What a sweep asks for, before it starts."""

    cells: int
    runs: int
    requests: int
    cpu_s: float
    num_bytes: float


def make_plan(scenario: Scenario, base_dir: Path, folder: RunFolder, shard: Shard = WHOLE) -> Plan:
    """Copy the input files into the folder and lay out all runs."""
    scenario, base_dir = copy_inputs(scenario, base_dir, folder)
    cells = cell_scenarios(scenario, shard.takes)
    return Plan(scenario, base_dir, tuple(cells), tuple(_tasks(scenario, base_dir, cells)), shard)


def _tasks(scenario: Scenario, base_dir: Path, cells: Sequence[Cell]) -> Iterator[Task]:
    for cell in cells:
        text = cell.scenario.model_dump_json()
        for arm in cell.scenario.arms:
            for replicate in range(scenario.sweep.replicates):
                yield Task(text, cell.cell_id, dict(cell.vary), arm, replicate, str(base_dir))


def run_folder(cell_id: str, arm: str, replicate: int) -> str:
    """Where a run's files lie in the results folder."""
    return f"cells/{check_slug(cell_id)}/{check_slug(arm)}/r{replicate}"


def place_of(task: Task) -> str:
    """Where a task's files lie in the results folder; names it in the journal."""
    return run_folder(task.cell_id, task.arm, task.replicate)


def preflight(scenario: Scenario, base_dir: Path) -> None:
    """Complain about a wrong sweep, trace or arm before anything is written, while files have the user's names.

    Raises:
        ScenarioError: with every problem found.
    """
    first = cell_scenarios(scenario, lambda cell: cell == 0)[0].scenario
    first.workload.requests(Streams(first.seed), base_dir)
    if problems := broken_arms(scenario, base_dir):
        raise ScenarioError(problems)


def estimate(scenario: Scenario, base_dir: Path, shard: Shard = WHOLE) -> Estimate:
    """Count and cost a sweep without laying it out; requests are those of its first cell."""
    cells = len(range(shard.part - 1, num_cells(scenario), shard.parts))
    first = cell_scenarios(scenario, lambda cell: cell == 0)[0].scenario
    runs = cells * len(scenario.arms) * scenario.sweep.replicates
    requests = runs * first.workload.facts(base_dir).num_requests
    return Estimate(
        cells,
        runs,
        requests,
        runs * SECONDS_PER_RUN + requests * SECONDS_PER_REQUEST,
        runs * BYTES_PER_RUN + requests * BYTES_PER_REQUEST,
    )


def narrowed(scenario: Scenario, arms: Sequence[str] | None, replicates: int | None) -> Scenario:
    """The scenario with only these arms (and the baseline) and this many replicates.

    Raises:
        ScenarioError: an unknown arm, or fewer than one replicate.
    """
    if arms is not None:
        if unknown := no_such_arm(arms, scenario.arms):
            raise ScenarioError("\n".join(unknown))
        kept = {name: arm for name, arm in scenario.arms.items() if name in arms or name == scenario.baseline}
        scenario = scenario.model_copy(update={"arms": kept})
    if replicates is not None:
        if replicates < 1:
            raise ScenarioError(f"found {replicates} replicates; allowed: at least 1")
        scenario = scenario.model_copy(update={"sweep": scenario.sweep.model_copy(update={"replicates": replicates})})
    return scenario


def size(vary: Mapping[str, object]) -> float:
    """How long a run will take, roughly and relative to others: a lower load means smaller batches, so more steps."""
    numbers = [float(value) for value in vary.values() if isinstance(value, int | float)]
    return -min(numbers, default=0.0)
