"""The cases of the suites as scenario files that any command takes, with what was measured in their comments."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import SimError
from sim.scenario.dump import dump_data
from sim.validation.case import Drive
from sim.validation.recorded_runs import read_recordings, recorded_scenario, trace_text
from sim.validation.scores import Score
from sim.validation.server_points import point_scenarios
from sim.validation.speedup import Found, Speedups

#: How the suite drives a case, and what another command does with the file instead.
_DRIVEN: Mapping[Drive, str] = {
    "clones": "batches of clones that accept alike, timed with their prefill; other commands run a closed loop",
    "closed": "a closed loop, in its steady window",
    "open": "Poisson arrivals",
    "steps": "decode steps of one uniform batch, priced and not served: `specsim explain`",
}


class CaseFile(NamedTuple):
    """A file, relative to the folder of all; its text."""

    path: str
    text: str


def speedup_files(suite: Speedups) -> Iterator[CaseFile]:
    """One scenario for each comparison that was run, with the acceptance that was used."""
    for one in (*suite.found, *suite.advisory):
        case, row = one.case, one.case.row
        about = [
            f"{row.source}, {row.table}: {row.target_model}, {row.gpu}, {row.engine}, {row.method}, {row.k_or_tree}, "
            f"{row.dataset}, load {row.load}",
            f"trust {row.trust}{', advisory' if case.advisory else ''}; {row.metric}",
            f"driven as {_DRIVEN[case.drive]}",
            *_measured(one),
            *([f"acceptance {one.acceptance}"] if one.acceptance else []),
            *case.remarks,
        ]
        yield _file(f"speedup/{_name(row.case_id)}.yaml", about, case.scenario(one.tokens_per_step))


def server_files(folder: Path) -> Iterator[CaseFile]:
    """One scenario for each whole server that can be run, and for each recorded run, with its trace beside it."""
    for name, measured, scenario in point_scenarios(folder):
        about = [name, "driven as waves of users, every request counted, see docs/reference/validate.md", measured]
        yield _file(f"server/{_name(name)}.yaml", about, scenario)
    for recorded in read_recordings(folder):
        trace = f"{_name(recorded.name)}_trace.csv"
        try:
            scenario = recorded_scenario(recorded.engine, Path(trace), naive=False)
        except SimError:
            continue  # its reason stands on the suite's page
        yield CaseFile(f"server/{trace}", trace_text(recorded.requests))
        about = [f"recorded run {recorded.name}, replayed at the times its requests were queued"]
        yield _file(f"server/{_name(recorded.name)}.yaml", about, scenario)


def write_case_files(files: Iterator[CaseFile], folder: Path) -> int:
    """Write them, over older ones of the same name; returns how many scenarios there are.

    Raises:
        OSError: the folder cannot be written.
    """
    count = 0
    for path, text in files:
        there = folder / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, encoding="utf-8")
        count += there.suffix == ".yaml"
    return count


def _measured(one: Found) -> Iterator[str]:
    if not one.scores:
        yield "measured: its acceptance was solved from the measured speed-up, so nothing is scored"
    for score in one.scores:
        yield _said(score)


def _said(score: Score) -> str:
    band = "" if score.low is None else f", band {score.low:.4g} to {score.high:.4g}"
    return f"{score.quantity}: measured {score.measured:.4g}, predicted {score.predicted:.4g}{band}"


def _file(path: str, about: list[str], scenario: Mapping[str, Any]) -> CaseFile:
    comments = "".join(f"# {line}\n" for text in about for line in text.splitlines())
    return CaseFile(path, comments + dump_data(json.loads(json.dumps(scenario, default=str))))


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", text).strip("_")
