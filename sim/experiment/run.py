"""One experiment, from a loaded scenario to a results folder: cells x arms x replicates and what follows from them."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sim.errors import ResultsError, SimError
from sim.experiment.executor import local_executor
from sim.experiment.files import json_bytes
from sim.experiment.finish import Finished, write_results
from sim.experiment.journal import NAME as JOURNAL
from sim.experiment.journal import Record, as_record, read_journal, write_journal
from sim.experiment.manifest import code_digest
from sim.experiment.plan import WHOLE, Plan, Shard, make_plan, narrowed, place_of, preflight
from sim.experiment.rounds import HowToRun, Progress, intact, outcome_of, run_rounds
from sim.experiment.store import RunFolder, resumable
from sim.experiment.task import Outcome, Task
from sim.scenario.dump import dump_scenario, scenario_hash
from sim.scenario.load import LoadedScenario, load_scenario
from sim.scenario.schema import Scenario


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


def run(
    loaded: LoadedScenario,
    out_dir: str | Path,
    *,
    arms: Sequence[str] | None = None,
    replicates: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    how: HowToRun | None = None,
) -> Path:
    """Run an experiment and write its results folder.

    The same scenario, seed and version give the same bytes whatever the workers are, and whether or not the run was
    killed and resumed in between; wall-clock data are in `timing.json`.

    Args:
        loaded: the scenario.
        out_dir: the folder `<name>/<time>-<hash>` is made below it.
        arms: run only these (the baseline always runs).
        replicates: instead of the scenario's.
        jobs: worker processes, default one per processor. With more than 1, a script that calls this needs an
            `if __name__ == "__main__":` guard.
        progress: called after every run.
        how: another executor, one shard, resuming.

    Returns:
        The results folder. Its manifest's `status` is `partial` when some runs failed.

    Raises:
        ScenarioError: an unknown arm, or a wrong value in the sweep.
        ResultsError, StorageError: the folder cannot be written, or cannot be resumed.
        AllRunsFailedError: no run finished.
        Interrupted: the user interrupted.
    """
    how = how or HowToRun(partial(local_executor, jobs))
    scenario = narrowed(loaded.scenario, arms, replicates)
    preflight(scenario, loaded.base_dir)
    folder = _open(Path(out_dir), scenario, how)
    try:
        interrupted = _fill(folder, loaded, scenario, how, progress)
    except BaseException:
        folder.leave()
        raise
    run_dir = folder.publish()
    if interrupted:
        raise Interrupted(run_dir)
    return run_dir


def _fill(
    folder: RunFolder, loaded: LoadedScenario, scenario: Scenario, how: HowToRun, progress: Progress | None
) -> bool:
    """Run what is not known yet and write every file of the folder; returns whether the user interrupted."""
    started, clock = datetime.now(UTC), time.perf_counter()
    plan = make_plan(scenario, loaded.base_dir, folder, how.shard)
    header = _header(plan, loaded)
    known: dict[str, Outcome] = {}
    if how.resume:
        header, known = _taken_up(folder, header, how)
    _begin(folder, plan, loaded, header, fresh=not how.resume)
    plan, done, interrupted = run_rounds(folder, plan, known, how, progress)
    finished = Finished(plan, done, tuple(header["notes"]))
    if not any(outcome.row for outcome in done.values()):
        raise _nothing(done)
    write_results(folder, finished)
    folder.write("scenario.resolved.yaml", dump_scenario(plan.scenario).encode())
    last = _header(plan, loaded) | {"begun": header["begun"]}
    write_journal(folder.inside(JOURNAL), [last, *_records(folder, plan, done)])
    folder.write("timing.json", json_bytes(_timing(started, time.perf_counter() - clock, plan.tasks, done)))
    return interrupted


def find_unfinished(loaded: LoadedScenario, out_dir: str | Path, shard: Shard = WHOLE) -> Path | None:
    """The latest unfinished folder of this very scenario (arms and replicates included), or None.

    One that Ctrl-C published counts. So does one that a process works on, so that taking it up is refused rather than
    the same runs begun a second time.
    """
    scenario = loaded.scenario
    stem = folder_digest(scenario, shard)[:8]
    return next(resumable(Path(out_dir) / scenario.name, stem), None)


def begun(folder: Path) -> tuple[LoadedScenario, Shard]:
    """The scenario and shard that an unfinished folder was begun with.

    Raises:
        ResultsError: it is not such a folder.
    """
    header = next(read_journal(folder / JOURNAL), None)
    if header is None or "experiment" not in header:
        raise ResultsError(f"{folder}: not an unfinished run: there is no journal in it")
    loaded = load_scenario(str(folder / "scenario.resolved.yaml"))
    given = (folder / "scenario.yaml").read_text(encoding="utf-8")
    return LoadedScenario(loaded.scenario, folder, given, tuple(header["notes"])), Shard(*header["shard"])


def folder_digest(scenario: Scenario, shard: Shard) -> str:
    """Names the folder: the scenario and, unless it is the whole sweep, the shard."""
    digest = scenario_hash(scenario)
    return digest if shard == WHOLE else f"{digest[:4]}{shard.part:04d}"


def _open(out_dir: Path, scenario: Scenario, how: HowToRun) -> RunFolder:
    if how.resume is not None:
        return RunFolder.reopen(how.resume)
    return RunFolder(out_dir, scenario.name, folder_digest(scenario, how.shard))


def _header(plan: Plan, loaded: LoadedScenario) -> Record:
    """The journal's first record: only the very same experiment may go on with it.

    A search adds points, so `experiment`, what is to be run, may come to differ from `begun`, what was asked.
    """
    experiment = hashlib.sha256(dump_scenario(plan.scenario).encode()).hexdigest()
    return as_record(
        {
            "experiment": experiment,
            "begun": experiment,
            "code": code_digest(),
            "shard": list(plan.shard),
            "runs": len(plan.tasks),
            "notes": [_without_folder(note) for note in loaded.notes],
        }
    )


def _begin(folder: RunFolder, plan: Plan, loaded: LoadedScenario, header: Record, *, fresh: bool) -> None:
    """What a later `--resume` needs to know, before the first run."""
    if fresh:
        resolved = dump_scenario(plan.scenario)
        folder.write("scenario.yaml", (loaded.source_text or resolved).encode())
        folder.write("scenario.resolved.yaml", resolved.encode())
        write_journal(folder.inside(JOURNAL), [header])


def _taken_up(folder: RunFolder, header: Record, how: HowToRun) -> tuple[Record, dict[str, Outcome]]:
    """The header, with what was asked at first, and the journal's finished runs with intact files, by place.

    Raises:
        ResultsError: the folder belongs to another experiment, or to another version of specsim; it is left as it was.
    """
    records = list(read_journal(folder.path / JOURNAL))
    first = records[0] if records else {}
    if why := _why_not(first, header, how):
        folder.put_back()
        raise ResultsError(f"{folder.path}: {why}")
    known = {record["run"]: outcome_of(record) for record in records[1:] if "run" in record and intact(folder, record)}
    return header | {"begun": first.get("begun", first["experiment"])}, known


def _why_not(first: Record, header: Record, how: HowToRun) -> str:
    """Why a folder with this first record cannot be gone on with; empty when it can."""
    same = header["experiment"] in (first.get("experiment"), first.get("begun"))
    if not same or first.get("shard") != header["shard"]:
        return "begun with another scenario, seed, replicates or shard; start afresh"
    if first.get("code") != header["code"] and not how.allow_mixed:
        return (
            "begun by another version of specsim, whose figures may differ; "
            "start afresh, or mix them with --allow-mixed"
        )
    return ""


def _records(folder: RunFolder, plan: Plan, done: Mapping[int, Outcome]) -> list[Record]:
    """The journal's records in the order of the tasks."""
    known = {record["run"]: record for record in read_journal(folder.path / JOURNAL) if "run" in record}
    places = [place_of(task) for index, task in enumerate(plan.tasks) if index in done]
    return [known[place] for place in places if place in known]


def _nothing(done: Mapping[int, Outcome]) -> BaseException:
    """Why there is nothing to write."""
    return AllRunsFailedError(done[min(done)]) if done else Interrupted(None)


def _without_folder(note: str) -> str:
    """A note with the file's name instead of its path: results folders hold no paths."""
    place, colon, rest = note.partition(":")
    return f"{Path(place).name}{colon}{rest}"


def _timing(
    started: datetime, wall_s: float, tasks: Sequence[Task], outcomes: Mapping[int, Outcome]
) -> dict[str, object]:
    runs = [
        {"run": place_of(task), "wall_s": outcomes[index].wall_s}
        for index, task in enumerate(tasks)
        if index in outcomes
    ]
    return {"started": started.isoformat(timespec="seconds"), "wall_s": wall_s, "runs": runs}
