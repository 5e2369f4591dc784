"""Rounds of runs: makes what is missing, keeps what finished, and asks what to run next."""

import hashlib
import shutil
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from sim.experiment.compare import Runs, runs_by_arm
from sim.experiment.executor import Died, Executor, local_executor
from sim.experiment.files import StorageError
from sim.experiment.journal import NAME as JOURNAL
from sim.experiment.journal import Journal, Record, as_record
from sim.experiment.plan import WHOLE, Plan, Shard, make_plan, place_of, size
from sim.experiment.store import RunFolder
from sim.experiment.task import Outcome, Task, run_cell_arm
from sim.scenario.schema import Scenario

#: Called after every run with (finished, all, label of the run).
Progress = Callable[[int, int, str], None]
Workers = Callable[[], AbstractContextManager[Executor]]
#: What to run next, given what is known: the scenario with more points or replicates, or None when that is enough.
Refine = Callable[[Plan, Runs], Scenario | None]


@dataclass(frozen=True, slots=True)
class Work:
    """Where results folders are made, who works, and who is told after every run."""

    out_dir: Path
    workers: Workers
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class HowToRun:
    """Where and how an experiment runs; nothing of it changes the result of a run.

    Attributes:
        workers: makes the executor; default: the processors of this machine.
        refine: asked after every round of runs; by default one round is enough.
        shard: run only this part of the sweep.
        resume: take up this unfinished folder.
        allow_mixed: resume what another version of specsim began.
    """

    workers: Workers = local_executor
    refine: Refine | None = None
    shard: Shard = WHOLE
    resume: Path | None = None
    allow_mixed: bool = False


def run_rounds(
    folder: RunFolder, plan: Plan, known: Mapping[str, Outcome], how: HowToRun, progress: Progress | None
) -> tuple[Plan, dict[int, Outcome], bool]:
    """Run rounds until nothing is to be refined.

    Args:
        folder: where it all goes.
        plan: the first round.
        known: what the journal of a resumed folder tells of finished runs of any round, by place.
        how: where and how.
        progress: called after every run.

    Returns:
        The last plan, the outcomes of its tasks, and whether the user interrupted.
    """
    done = _done(plan, known)
    try:
        with Journal(folder.inside(JOURNAL)) as journal, how.workers() as executor:
            while True:
                _run_missing(folder, journal, executor, plan, done, progress)
                scenario = how.refine(plan, _known_runs(done)) if how.refine else None
                if scenario is None:
                    return plan, done, False
                known = {**known, **{place_of(plan.tasks[index]): outcome for index, outcome in done.items()}}
                plan = make_plan(scenario, plan.base_dir, folder, how.shard)
                done = _done(plan, known)
    except KeyboardInterrupt:
        _remove_unfinished(folder, {place_of(plan.tasks[index]) for index in done})
        return plan, done, True


def _done(plan: Plan, known: Mapping[str, Outcome]) -> dict[int, Outcome]:
    """The tasks of a plan that need not be run."""
    return {i: known[place] for i, task in enumerate(plan.tasks) if (place := place_of(task)) in known}


def _remove_unfinished(folder: RunFolder, finished: Container[str]) -> None:
    """An interrupt may come between a run's files and its record: remove the files."""
    for run in folder.path.glob("cells/*/*/r*"):
        if run.relative_to(folder.path).as_posix() not in finished:
            shutil.rmtree(run, ignore_errors=True)


def _known_runs(done: Mapping[int, Outcome]) -> Runs:
    """The rows of all finished runs."""
    return runs_by_arm(outcome.row for _, outcome in sorted(done.items()) if outcome.row is not None)


def _run_missing(
    folder: RunFolder,
    journal: Journal,
    executor: Executor,
    plan: Plan,
    done: dict[int, Outcome],
    progress: Progress | None,
) -> None:
    """Run every task that is not done, journal it, and add it to `done`."""
    order = sorted(set(range(len(plan.tasks))) - set(done), key=lambda index: (-size(plan.tasks[index].vary), index))
    ordered = [plan.tasks[index] for index in order]
    for position, result in executor.run(run_cell_arm, ordered):
        outcome = Outcome(None, result.reason, 1) if isinstance(result, Died) else result
        done[order[position]] = _keep(folder, journal, ordered[position], outcome)
        if progress is not None:
            task = ordered[position]
            progress(len(done), len(plan.tasks), f"{task.arm} r{task.replicate}")


def _keep(folder: RunFolder, journal: Journal, task: Task, outcome: Outcome) -> Outcome:
    """Write a run's files, then say in the journal that it is done; returns it without the files."""
    error = outcome.error.replace(f"{task.base_dir}/", "")
    if outcome.exit_code == StorageError.exit_code:
        raise StorageError(error)
    if outcome.row is None:
        return replace(outcome, error=error)
    for name, data in outcome.files.items():
        folder.write(f"{place_of(task)}/{name}", data, durable=False)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in outcome.files.items()}
    record = as_record(
        {
            "run": place_of(task),
            "row": outcome.row,
            "context_tokens": outcome.context_tokens,
            "extrapolated": outcome.extrapolated,
            "files": digests,
        }
    )
    journal.append(record)
    return replace(outcome, row=record["row"], files={})


def outcome_of(record: Record) -> Outcome:
    """The outcome that a journal's record tells of."""
    return Outcome(record["row"], "", 0, record["context_tokens"], record["extrapolated"])


def intact(folder: RunFolder, record: Record) -> bool:
    """Whether the files of a journalled run are there and unchanged."""
    try:
        return all(
            hashlib.sha256(folder.inside(f"{record['run']}/{name}").read_bytes()).hexdigest() == digest
            for name, digest in record["files"].items()
        )
    except OSError:
        return False
