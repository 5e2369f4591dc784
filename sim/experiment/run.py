"""One experiment, from a loaded scenario to a results folder: cells x arms x replicates and what follows from them."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sim.errors import ScenarioError, SimError
from sim.experiment.answers import break_even_document, cost_caveats, cost_profile
from sim.experiment.compare import COMPARE_COLUMNS, Runs, compare_rows, runs_by_arm
from sim.experiment.executor import Died, execute, usable_cpus
from sim.experiment.files import StorageError, csv_bytes, json_bytes, parquet_rows_bytes
from sim.experiment.inputs import copy_inputs
from sim.experiment.manifest import manifest_document
from sim.experiment.regret import REGRET_COLUMNS, regret_rows
from sim.experiment.store import RunFolder, check_slug
from sim.experiment.task import OUTSIDE, Outcome, Task, run_cell_arm
from sim.metrics.summary import Row
from sim.rng import Streams
from sim.scenario.cells import Cell, cell_scenarios
from sim.scenario.dump import dump_scenario, scenario_hash
from sim.scenario.lint import broken_arms
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario

#: Called after every run with (finished, all, label of the run).
Progress = Callable[[int, int, str], None]


class Interrupted(KeyboardInterrupt):
    """The user interrupted; finished runs are kept in `run_dir` (None when none had finished)."""

    def __init__(self, run_dir: Path | None) -> None:
        super().__init__("interrupted")
        self.run_dir = run_dir


class AllRunsFailedError(SimError):
    """Not one run finished, so nothing was written; the message is the first failure's."""

    def __init__(self, first: Outcome) -> None:
        super().__init__(first.error)
        self.exit_code = first.exit_code


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will be run.

    Attributes:
        scenario: narrowed to the chosen arms and replicates, files copied.
        base_dir: where its file names start.
        cells: the grid.
        tasks: one per cell, arm and replicate.
    """

    scenario: Scenario
    base_dir: Path
    cells: tuple[Cell, ...]
    tasks: tuple[Task, ...]


def run(
    loaded: LoadedScenario,
    out_dir: str | Path,
    *,
    arms: Sequence[str] | None = None,
    replicates: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Run an experiment and write its results folder.

    The same scenario, seed and version give the same bytes whatever `jobs` is; wall-clock data are in `timing.json`.

    Args:
        loaded: the scenario.
        out_dir: the folder `<name>/<time>-<hash>` is made below it.
        arms: run only these (the baseline always runs).
        replicates: instead of the scenario's.
        jobs: worker processes, default one per processor. With more than 1, a script that calls this needs an
            `if __name__ == "__main__":` guard.
        progress: called after every run.

    Returns:
        The results folder. Its manifest's `status` is `partial` when some runs failed.

    Raises:
        ScenarioError: an unknown arm, or a wrong value in the sweep.
        ResultsError, StorageError: the folder cannot be written.
        AllRunsFailedError: no run finished.
        Interrupted: the user interrupted.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    scenario = narrowed(loaded.scenario, arms, replicates)
    _preflight(scenario, loaded.base_dir)
    folder = RunFolder(Path(out_dir), scenario.name, scenario_hash(scenario))
    workers = max(1, usable_cpus() if jobs is None else jobs)
    outcomes: dict[int, Outcome] = {}
    plan, interrupted = None, False
    try:
        plan = make_plan(scenario, loaded.base_dir, folder)
        try:
            _run_all(plan, workers, outcomes, progress)
        except KeyboardInterrupt:
            interrupted = True
        _write_results(folder, plan, outcomes, loaded)
        timing = _timing(started, time.perf_counter() - clock, workers, plan.tasks, outcomes)
        folder.write("timing.json", json_bytes(timing))
    except BaseException:
        folder.discard()
        raise
    run_dir = folder.publish()
    if interrupted:
        raise Interrupted(run_dir)
    return run_dir


def _preflight(scenario: Scenario, base_dir: Path) -> None:
    """Complain about a wrong sweep, trace or arm before anything is written, while files have the user's names."""
    first = cell_scenarios(scenario)[0].scenario
    first.workload.requests(Streams(first.seed), base_dir)
    if problems := broken_arms(scenario, base_dir):
        raise ScenarioError(problems)


def narrowed(scenario: Scenario, arms: Sequence[str] | None, replicates: int | None) -> Scenario:
    """The scenario with only these arms (and the baseline) and this many replicates.

    Raises:
        ScenarioError: an unknown arm, or fewer than one replicate.
    """
    if arms is not None:
        unknown = [arm for arm in arms if arm not in scenario.arms]
        if unknown:
            raise ScenarioError(f"no such arm: {', '.join(unknown)}; there are {', '.join(scenario.arms)}")
        kept = {name: arm for name, arm in scenario.arms.items() if name in arms or name == scenario.baseline}
        scenario = scenario.model_copy(update={"arms": kept})
    if replicates is not None:
        if replicates < 1:
            raise ScenarioError(f"found {replicates} replicates; allowed: at least 1")
        scenario = scenario.model_copy(update={"sweep": scenario.sweep.model_copy(update={"replicates": replicates})})
    return scenario


def make_plan(scenario: Scenario, base_dir: Path, folder: RunFolder) -> Plan:
    """Copy the input files into the folder and lay out all runs."""
    scenario, base_dir = copy_inputs(scenario, base_dir, folder)
    cells = cell_scenarios(scenario)
    tasks = []
    for cell in cells:
        text = cell.scenario.model_dump_json()
        for arm in cell.scenario.arms:
            for replicate in range(scenario.sweep.replicates):
                place = folder.path / run_folder(cell.cell_id, arm, replicate)
                tasks.append(Task(text, cell.cell_id, dict(cell.vary), arm, replicate, str(base_dir), str(place)))
    return Plan(scenario, base_dir, tuple(cells), tuple(tasks))


def run_folder(cell_id: str, arm: str, replicate: int) -> str:
    """Where a run's files lie in the results folder."""
    return f"cells/{check_slug(cell_id)}/{check_slug(arm)}/r{replicate}"


def _run_all(plan: Plan, jobs: int, outcomes: dict[int, Outcome], progress: Progress | None) -> None:
    """Run every task, filling `outcomes` as they finish."""
    order = sorted(range(len(plan.tasks)), key=lambda index: _size(plan.tasks[index]), reverse=True)
    ordered = [plan.tasks[index] for index in order]
    for position, result in execute(run_cell_arm, ordered, jobs):
        outcome = Outcome(None, result.reason, 1) if isinstance(result, Died) else result
        outcome = replace(outcome, error=outcome.error.replace(f"{plan.base_dir}/", ""))
        if outcome.exit_code == StorageError.exit_code:
            raise StorageError(outcome.error)
        task = ordered[position]
        outcomes[order[position]] = outcome
        if progress is not None:
            progress(len(outcomes), len(ordered), f"{task.arm} r{task.replicate}")


def _size(task: Task) -> float:
    """How long a run will take, roughly: a lower load means smaller batches, hence more steps."""
    numbers = [v for v in task.vary.values() if isinstance(v, int | float)]
    return -min(numbers, default=0.0)


def _write_results(folder: RunFolder, plan: Plan, outcomes: Mapping[int, Outcome], loaded: LoadedScenario) -> None:
    """Everything but the runs' own files; the manifest last."""
    _remove_unfinished(plan.tasks, outcomes)
    rows = [row for index in range(len(plan.tasks)) if (row := _row(outcomes, index)) is not None]
    if not rows:
        failed = next(iter(outcomes.values()), None)
        raise AllRunsFailedError(failed) if failed is not None else Interrupted(None)
    runs, scenario = runs_by_arm(rows), plan.scenario
    _write_tables(folder, plan, rows, runs)
    answer = break_even_document(scenario, plan.base_dir, plan.cells, runs, _context(outcomes))
    folder.write("breakeven.json", json_bytes(answer))
    resolved = dump_scenario(scenario)
    folder.write("scenario.yaml", (loaded.source_text or resolved).encode())
    folder.write("scenario.resolved.yaml", resolved.encode())
    notes = [*(_without_folder(note) for note in loaded.notes), *_extrapolated(plan.tasks, outcomes)]
    notes += cost_caveats(scenario, plan.base_dir, plan.cells, _context(outcomes))
    profile = cost_profile(scenario, plan.base_dir, plan.cells)
    document = manifest_document(scenario, plan.cells, plan.tasks, outcomes, notes, profile)
    folder.write("manifest.json", json_bytes(document))


def _write_tables(folder: RunFolder, plan: Plan, rows: Sequence[Row], runs: Runs) -> None:
    scenario = plan.scenario
    confidence = scenario.sweep.breakeven.confidence if scenario.sweep.breakeven else 0.95
    cells = [(cell.cell_id, cell.vary) for cell in plan.cells]
    compared = compare_rows(runs, cells, scenario.arms, scenario.baseline, confidence)
    columns = list(rows[0])
    folder.write("summary.csv", csv_bytes(rows, columns))
    folder.write("summary.parquet", parquet_rows_bytes(rows, columns))
    folder.write("summary.json", json_bytes({"schema_version": 1, "rows": list(rows)}))
    vary = [f"vary.{key}" for key in scenario.sweep.vary]
    folder.write("compare.csv", csv_bytes(compared, ["cell_id", *vary, *COMPARE_COLUMNS]))
    regrets = regret_rows(runs, cells, scenario.arms, confidence)
    if regrets:
        folder.write("regret.csv", csv_bytes(regrets, ["cell_id", *vary, *REGRET_COLUMNS]))


def _extrapolated(tasks: Sequence[Task], outcomes: Mapping[int, Outcome]) -> Iterator[str]:
    """One remark per arm with steps that the cost model had not been given."""
    for arm in dict.fromkeys(task.arm for task in tasks):
        finished = [outcomes[i] for i, task in enumerate(tasks) if task.arm == arm and _row(outcomes, i) is not None]
        shares = [outcome.extrapolated for outcome in finished]
        if any(shares):
            yield f"{arm}: {min(shares):.1%} to {max(shares):.1%} of the steps of a run {OUTSIDE}"


def _row(outcomes: Mapping[int, Outcome], index: int) -> Row | None:
    return outcomes[index].row if index in outcomes else None


def _context(outcomes: Mapping[int, Outcome]) -> float:
    """Mean context over the finished runs, in task order so that it does not depend on who finished first."""
    known = [outcomes[index].context_tokens for index in sorted(outcomes) if outcomes[index].row is not None]
    return sum(known) / len(known)


def _remove_unfinished(tasks: Sequence[Task], outcomes: Mapping[int, Outcome]) -> None:
    for index, task in enumerate(tasks):
        if _row(outcomes, index) is None:
            shutil.rmtree(task.folder, ignore_errors=True)


def _without_folder(note: str) -> str:
    """A note with the file's name instead of its path: results folders hold no paths."""
    place, colon, rest = note.partition(":")
    return f"{Path(place).name}{colon}{rest}"


def _timing(
    started: datetime, wall_s: float, jobs: int, tasks: Sequence[Task], outcomes: Mapping[int, Outcome]
) -> dict[str, object]:
    runs = [
        {"run": run_folder(task.cell_id, task.arm, task.replicate), "wall_s": outcomes[index].wall_s}
        for index, task in enumerate(tasks)
        if index in outcomes
    ]
    return {"started": started.isoformat(timespec="seconds"), "wall_s": wall_s, "jobs": jobs, "runs": runs}
