"""The engine's state by the second, as the recorder of a run saw it (LLMServingSim, `bench/core/stat_logger.py`).

The recorder is a vLLM stat logger: it notes running, waiting and KV use each time the outputs of a step are handled,
in seconds since it was made, and a row `t` of the table holds the last note before `t`. The clock of the requests
begins when the first of them is queued. How far the clocks are apart follows from the recording alone: the table counts
the prompt tokens whose first output token falls into each second, and the requests say when these tokens came.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.tables import Table, read_table
from sim.metrics.record import RunRecord

Floats = NDArray[np.float64]

#: Columns of a table of states; KV use may be missing. `prompt_throughput` sets the clock where there is one.
SECONDS, _KV = ("t", "running", "waiting"), "kv_cache_pct"
_PROMPTS = "prompt_throughput"
#: Offsets tried within the second that the end of the run allows, beside those at which a first token changes rows.
_TRIED = 200


class Clock(NamedTuple):
    """How far the clock of the states is ahead of that of the requests.

    Attributes:
        ahead_s: states at `t` belong to requests at `t - ahead_s`.
        agree: share of the rows whose prompt tokens are exactly those of the requests; NaN where no row counts them.
    """

    ahead_s: float
    agree: float


class Series(NamedTuple):
    """A state over time: root mean square of the difference, in per cent of the range that was recorded.

    Attributes:
        what: running, waiting or KV use.
        span: the range.
        seconds: (N,) when it was recorded, on the clock of the states.
        measured, simulated: (N,) both states.
    """

    name: str
    what: str
    rms: float
    naive_rms: float
    span: float
    seconds: Floats
    measured: Floats
    simulated: Floats


def read_states(path: Path) -> Table:
    """The table of states.

    Raises:
        SimError: it is malformed; file, line and column.
    """
    return read_table(path, SECONDS, counts=(*SECONDS, _PROMPTS), optional=(_KV,))


def find_clock(seconds: Table, requests: Table) -> Clock:
    """The offset at which prompt tokens of requests and of rows agree best; the middle of it where it is a range.

    The last row holds the last step, so the offset is known to a second without counting anything.
    """
    if _PROMPTS not in seconds.columns:
        return Clock(0.0, float("nan"))
    ends, counted = seconds.numbers("t"), seconds.numbers(_PROMPTS)
    width = float(np.median(np.diff(ends))) if len(ends) > 1 else 1.0
    first, prompts = requests.numbers("first_token_s"), requests.numbers("input_tokens")
    most = float(ends[-1] - requests.numbers("last_token_s").max())
    changes = most - np.mod(most - (ends[-1] - first), width)
    edges = np.unique(np.concatenate((np.linspace(most - width, most, _TRIED), changes)))
    middles = 0.5 * (edges[1:] + edges[:-1])
    off = np.array([np.abs(_counts(first + ahead, prompts, ends, width) - counted).sum() for ahead in middles])
    best = np.flatnonzero(off <= off.min() + 0.5)
    together = best[best - best[0] == np.arange(len(best))]
    ahead = 0.5 * float(edges[together[0]] + edges[together[-1] + 1])
    agree = np.isclose(_counts(first + ahead, prompts, ends, width), counted, atol=0.06)
    return Clock(ahead, float(agree.mean()))


def _counts(times: Floats, tokens: Floats, ends: Floats, width: float) -> Floats:
    """Tokens per second in each row; those between rows (an idle second has none) are lost."""
    row = np.searchsorted(ends, times, side="right")
    inside = row < len(ends)
    inside[inside] &= times[inside] >= ends[row[inside]] - width
    return np.bincount(row[inside], tokens[inside], len(ends)) / width


def compare_series(
    name: str, seconds: Table, clock: Clock, ours: RunRecord, naive: RunRecord, *, overlaps: bool
) -> Iterator[Series]:
    """States of each row; one that never moves was not recorded.

    Args:
        name: of the run.
        seconds: the table of states.
        clock: of the table.
        ours: simulated.
        naive: simulated at datasheet peaks.
        overlaps: the engine had scheduled the next step when it noted the state.
    """
    at = seconds.numbers("t")
    for what, column in (("running", "running"), ("waiting", "waiting"), ("KV use", _KV)):
        measured = seconds.optional_numbers(column)
        span = float(np.ptp(measured))  # NaN where a second is missing
        if span > 0:
            both = [noted(record, what, at - clock.ahead_s, overlaps=overlaps) for record in (ours, naive)]
            rms, naive_rms = (100 * float(np.sqrt(np.mean((state - measured) ** 2))) / span for state in both)
            yield Series(name, what, rms, naive_rms, span, at, measured, both[0])


def noted(record: RunRecord, what: str, seconds: Floats, *, overlaps: bool) -> Floats:
    """What the recorder would have noted last before each time: after a step, without the requests that it ended.

    With overlapped scheduling the next step has been scheduled by then: its admissions and blocks count. KV use in per
    cent; the blocks of requests that the step ended are still in it. Replicas are added up, their KV use is averaged.
    """
    found = np.zeros(len(seconds))
    for replica in range(record.num_replicas):
        end_ns, states = _states(record, replica, what, overlaps=overlaps)
        last = np.searchsorted(end_ns, seconds * 1e9, side="left") - 1
        known = last >= 0
        found[known] += states[last[known]]
    return found


def _states(record: RunRecord, replica: int, what: str, *, overlaps: bool) -> tuple[NDArray[np.int64], Floats]:
    """When the steps of a replica end, in nanoseconds, and the state after each."""
    steps, own = record.steps, record.steps.replica == replica
    start_ns, finish_ns = steps.start_ns[own], record.requests.finish_ns[record.requests.replica == replica]
    end_ns = start_ns + steps.duration_ns[own]
    ended = np.bincount(np.searchsorted(end_ns, finish_ns), minlength=len(end_ns))[: len(end_ns)]
    states = {
        "running": 1.0 * (steps.running[own] - ended),
        "waiting": 1.0 * steps.waiting[own],
        "KV use": 100.0 * steps.kv_blocks_used[own] / record.num_kv_blocks,
    }[what]
    if overlaps:
        states = np.append(states[1:], 0.0)
        if what == "running":  # the next step was scheduled before these were found to have ended
            states[:-1] += ended[1:] - ended[:-1]
    idle = np.append(start_ns[1:] > end_ns[:-1], [True])[: len(end_ns)]
    return end_ns, np.where(idle, 0.0, np.maximum(states[: len(end_ns)], 0.0))
