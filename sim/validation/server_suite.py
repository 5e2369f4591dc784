"""The suite `server` and its page: recorded runs replayed, whole servers at fixed concurrency."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sim.validation.markdown import table
from sim.validation.recorded_runs import RecordedRun, recorded_runs
from sim.validation.scores import Gate, Score, mean_gate, worst_gate
from sim.validation.server_points import Points, run_points
from sim.validation.suite_page import (
    NO_PICTURES,
    Pictures,
    gate_table,
    page,
    reasons,
    score_table,
    shown,
    summary_table,
)

_INTRODUCTION = """# Server: recorded runs and whole servers, predicted and measured

Written by `specsim validate server`. Recorded runs are replayed request by request: the times they were queued, their
lengths, the limits and KV blocks of the engine. TTFT = first token - queued, TPOT = (last - first) / (output - 1),
E2E = last - queued. Series are compared at every recorded second: as the recorder noted it after the last step before,
on its own clock, which began when it was made. How far that is from the clock of the requests is found from the
recording alone (prompt tokens by the second against the stamps of first tokens). Whole servers are closed
loops at the concurrency of each setting, as InferenceMAX drives them (lengths uniform between 0.8 and 1 times the
nominal ones, all users at once, all requests counted), medians over repeated settings.

- **band**: one sigma of the model's own error. Recorded runs: simulated with all passes so much longer or shorter.
  Whole servers: of a decode step with all users (TPOT), of a prompt's pass (TTFT); clients and launches have none.
- **naive**: datasheet peaks and no fixed costs. **peer**: LLMServingSim, whose layer times were profiled inside vLLM
  on the same cards. Recorded runs were not fitted to; their GPU profiles hold kernel times of the same cards and
  engine. The host times of the engine profiles `vllm` and `trtllm` were fitted to the TPOT of these whole servers:
  see [README.md](README.md).
"""


class ServerSuite(NamedTuple):
    """What was run, and runs that were not, with the reason."""

    runs: tuple[RecordedRun, ...]
    points: Points
    not_run: tuple[tuple[str, str], ...]


def run_server(folder: Path) -> ServerSuite:
    """Run all that a folder holds.

    Raises:
        CalibrationError: the table of whole servers is malformed.
    """
    runs, not_run = recorded_runs(folder)
    points = run_points(folder)
    return ServerSuite(tuple(runs), points, (*not_run, *((one.name, one.reason) for one in points.not_run)))


def server_suite_gates(suite: ServerSuite) -> list[Gate]:
    """What the suite is meant to reach."""
    runs = [score for run in suite.runs for score in run.scores]
    series = [one.rms for run in suite.runs for one in run.series if one.what != "KV use"]
    both = (*suite.points.dense, *suite.points.experts)
    return [
        worst_gate("recorded runs, worst mean", 2.0, [one for one in runs if one.quantity.startswith("mean")]),
        worst_gate("recorded runs, worst P99", 5.0, [one for one in runs if one.quantity.startswith("P99")]),
        Gate("running and waiting, largest RMS of the range", 5.0, max(series, default=None)),
        mean_gate("TPOT of dense servers, mean", 8.0, _of(suite.points.dense, "TPOT")),
        mean_gate("TPOT of mixtures of experts, mean", 12.0, _of(suite.points.experts, "TPOT")),
        mean_gate("TTFT of servers, mean", 20.0, _of(both, "TTFT")),
    ]


def _of(scores: Sequence[Score], quantity: str) -> list[Score]:
    return [score for score in scores if score.quantity == quantity]


def server_groups(suite: ServerSuite) -> list[tuple[str, list[Score]]]:
    """What is summarised."""
    groups: list[tuple[str, list[Score]]] = [(run.name, list(run.scores)) for run in suite.runs]
    both = (*suite.points.dense, *suite.points.experts)
    for quantity in ("TPOT", "TTFT"):
        names = dict.fromkeys(score.group for score in both)
        groups += [(f"{quantity}, {name}", [s for s in _of(both, quantity) if s.group == name]) for name in names]
    return groups


def _clock_line(run: RecordedRun) -> str:
    if run.clock is None or not run.series:
        return f"- {run.name}: states were not recorded."
    ahead = f"the clock of the states is {run.clock.ahead_s:.2f} s ahead of that of the requests"
    return f"- {run.name}: {ahead}; prompt tokens agree in {100 * run.clock.agree:.0f} % of the rows."


def render_server(suite: ServerSuite, pictures: Pictures = NO_PICTURES) -> str:
    """The whole page."""
    rows = [
        [one.name, one.what, f"{one.rms:.1f} %", f"{one.naive_rms:.1f} %", f"{one.span:g}"]
        for run in suite.runs
        for one in run.series
    ]
    both = (*suite.points.dense, *suite.points.experts)
    groups = dict.fromkeys(score.group for score in both)
    return page(
        _INTRODUCTION,
        "## Targets\n\n" + gate_table(server_suite_gates(suite)),
        shown(pictures, "server-groups"),
        "## Summary\n\n" + summary_table(server_groups(suite)),
        *(f"## {run.name}\n\nPreemptions: {run.preemptions}.\n\n{score_table(run.scores)}" for run in suite.runs),
        "## State of the engine by the second\n\nRMS in per cent of the range that was recorded.\n\n"
        + table(["run", "what", "ours", "naive", "range"], rows)
        + "\n\n"
        + "\n".join(map(_clock_line, suite.runs)),
        shown(pictures, "server-series", "server-tpot", "server-ttft"),
        *(f"## {group}\n\n{score_table([s for s in both if s.group == group])}" for group in groups),
        "## Not run\n\n" + reasons(suite.not_run),
    )
