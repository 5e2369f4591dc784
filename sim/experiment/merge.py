"""Shards of one sweep joined to the results folder that one machine would have written, byte for byte."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sim.errors import ResultsError
from sim.experiment.files import json_bytes
from sim.experiment.finish import Finished, write_results
from sim.experiment.journal import NAME as JOURNAL
from sim.experiment.journal import Record, read_journal, write_journal
from sim.experiment.plan import WHOLE, Plan, make_plan, place_of
from sim.experiment.rounds import intact, outcome_of
from sim.experiment.store import RunFolder
from sim.experiment.task import Outcome
from sim.scenario.dump import scenario_hash
from sim.scenario.load import load_scenario


@dataclass(frozen=True, slots=True)
class Part:
    """One shard: its folder, the header of its journal, and its finished runs by name."""

    folder: Path
    header: Record
    runs: Mapping[str, Record]


def merge(folders: Sequence[Path], out_dir: Path) -> Path:
    """Join all shards of a sweep, in any order.

    Args:
        folders: one results folder per shard; all of them, none twice.
        out_dir: the folder `<name>/<time>-<hash>` is made below it.

    Raises:
        ResultsError: a shard is missing, given twice, damaged, or of another sweep.
        StorageError: the folder cannot be written.
    """
    parts = sorted((_read(folder) for folder in folders), key=lambda part: part.header["shard"])
    _check(parts)
    loaded = load_scenario(str(parts[0].folder / "scenario.resolved.yaml"))
    folder = RunFolder(out_dir, loaded.scenario.name, scenario_hash(loaded.scenario))
    try:
        plan = make_plan(loaded.scenario, parts[0].folder, folder)
        done = _copy_runs(folder, plan, parts)
        if missing := len(plan.tasks) - len(done):
            raise ResultsError(f"{missing} of {len(plan.tasks)} runs are in no shard: finish the shards with --resume")
        for name in ("scenario.yaml", "scenario.resolved.yaml"):
            folder.write(name, (parts[0].folder / name).read_bytes())
        write_results(folder, Finished(plan, done, tuple(parts[0].header["notes"])))
        header = parts[0].header | {"shard": list(WHOLE), "runs": len(plan.tasks)}
        known = {run: record for part in parts for run, record in part.runs.items()}
        write_journal(folder.inside(JOURNAL), [header, *(known[place_of(task)] for task in plan.tasks)])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        folder.write("timing.json", json_bytes({"started": now, "wall_s": None, "runs": []}))
    except BaseException:
        folder.discard()
        raise
    return folder.publish()


def _read(folder: Path) -> Part:
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such folder; expected the results of a shard")
    header, *records = list(read_journal(folder / JOURNAL)) or [{}]
    if "shard" not in header or not (folder / "scenario.resolved.yaml").is_file():
        raise ResultsError(f"{folder}: not a finished shard of a sweep")
    return Part(folder, header, {record["run"]: record for record in records if "run" in record})


def _check(parts: Sequence[Part]) -> None:
    """All shards of one sweep, by one version of specsim, each once."""
    first = parts[0]
    for part in parts:
        for key, what in (("experiment", "another scenario"), ("code", "another version of specsim")):
            if part.header.get(key) != first.header.get(key):
                raise ResultsError(f"{part.folder}: a shard of {what} than {first.folder}")
    count = first.header["shard"][1]
    given = [part.header["shard"][0] for part in parts]
    if any(part.header["shard"][1] != count for part in parts):
        raise ResultsError("the shards split the sweep into different numbers of parts")
    if twice := sorted({number for number in given if given.count(number) > 1}):
        raise ResultsError(f"given twice: shard {', '.join(f'{number}/{count}' for number in twice)}")
    if missing := sorted(set(range(1, count + 1)) - set(given)):
        raise ResultsError(f"missing: shard {', '.join(f'{number}/{count}' for number in missing)}")


def _copy_runs(folder: RunFolder, plan: Plan, parts: Sequence[Part]) -> dict[int, Outcome]:
    """Copy the files of every run and check them against the journal."""
    places = {place_of(task): index for index, task in enumerate(plan.tasks)}
    done = {}
    for part in parts:
        for run, record in part.runs.items():
            target = folder.inside(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(part.folder / run, target)
            if not intact(folder, record):
                raise ResultsError(f"{part.folder / run}: damaged since it was written; run the shard again")
            done[places[run]] = outcome_of(record)
    return done
