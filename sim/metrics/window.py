"""Which requests and which stretch of time a run's metrics are taken from.

Latencies are statistics over *requests chosen by index* (never by when they finished: that would favour short ones).
Rates and time averages are taken over a *window of time*, tokens counted where they came out, so they are unbiased.

Closed loop (concurrency C, N requests): the first max(N/10, C) requests are warm-up and the last C are cool-down (at
most a third of N each). The window runs from the time as many requests as are warm-up have finished to the first
finish that finds no successor, finish number N - C + 1: after it the concurrency falls. Every arm's window so holds
the same number of completions.
Open loop: the first max(N/10, those that arrived before the running count first reached the median of its later
half) are warm-up (at most N/3) and the last N/20 are cool-down; the window runs from the arrival of the first measured
request to the last arrival.
Sessions, open or closed: as in an open loop, where a session arrives with its first turn. The last arrival is then the
moment from which no ended session is followed by another; requests that arrive after it are not measured.
A run too short for a window (all requests start at once, none ends in it, or in a closed loop fewer than N/10: then the
window is a few steps between start and drain) is measured whole, marked as not steady,
and so is one that is to be compared with a load test.
"""

from dataclasses import dataclass

import numpy as np

from sim.metrics.record import Bools, Ints, RunRecord, Status


@dataclass(frozen=True, slots=True)
class Loop:
    """How load is offered, and what the user said about warm-up.

    Attributes:
        max_concurrency: users of a closed loop; None in an open loop and with sessions.
        saturates: whether requests go on arriving when the server cannot keep up.
        warmup_requests, cooldown_requests: how many to leave out at each end; None = the default rule.
        whole: measure the whole run, start and drain included, as the clients of load tests do.
    """

    max_concurrency: int | None
    warmup_requests: int | None = None
    cooldown_requests: int | None = None
    saturates: bool = True
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Window:
    """Where metrics are measured.

    Attributes:
        start_ns, end_ns: the window of time, end > start; a step belongs to it when it ends in (start, end].
        measured: (N,) requests that latency statistics use.
        num_warmup, num_cooldown: requests left out at each end of the table.
        steady: False when the run is too short for a window and the whole of it is used instead.
    """

    start_ns: int
    end_ns: int
    measured: Bools
    num_warmup: int
    num_cooldown: int
    steady: bool

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.end_ns - self.start_ns) / 1e9

    def contains(self, times_ns: Ints) -> Bools:
        """Which events happened in the window."""
        return (times_ns > self.start_ns) & (times_ns <= self.end_ns)


def measurement_window(record: RunRecord, loop: Loop) -> Window:
    """The window of a run by the rules above; the whole run when it is too short for them."""
    rows = record.requests
    num = len(rows.arrival_ns)
    warmup = _default_warmup(record, loop) if loop.warmup_requests is None else min(loop.warmup_requests, num - 1)
    cooldown = _default_cooldown(num, loop) if loop.cooldown_requests is None else loop.cooldown_requests
    cooldown = min(cooldown, num - 1 - warmup)
    start, end = (
        _open_edges(_entry_ns(record), warmup)
        if loop.max_concurrency is None
        else _closed_edges(release_times(record), warmup, loop.max_concurrency)
    )
    least = 1 if loop.max_concurrency is None else max(1, num // 10)
    inside = int(((rows.finish_ns > start) & (rows.finish_ns <= end)).sum())
    steady = not loop.whole and start < end and inside >= least
    if not steady:
        start, end = int(rows.arrival_ns[rows.arrival_ns >= 0].min(initial=2**62)), _end_of_run(record)
        warmup = warmup if loop.warmup_requests else 0
        cooldown = cooldown if loop.cooldown_requests else 0
    index = np.arange(num)
    measured = (index >= warmup) & (index < num - cooldown)
    if rows.session_row is not None:
        measured &= (rows.arrival_ns >= 0) & (rows.arrival_ns <= end)
    return Window(start, end, measured, warmup, cooldown, steady)


def _entry_ns(record: RunRecord) -> Ints:
    """(N,) when each request, or the first turn of its session, arrived; non-decreasing."""
    rows = record.requests
    return rows.arrival_ns if rows.session_row is None else rows.arrival_ns[rows.session_row]


def release_times(record: RunRecord, chosen: Bools | None = None) -> Ints:
    """When each (chosen) request left the system, ascending; a rejected one leaves when it arrives."""
    rows = record.requests
    left = np.where(rows.status == Status.REJECTED, rows.arrival_ns, rows.finish_ns)
    left = left if chosen is None else left[chosen]
    return np.sort(left[left >= 0])


def _end_of_run(record: RunRecord) -> int:
    """End of the last step, or one nanosecond after the last arrival when nothing ran."""
    steps = record.steps
    last_step = int((steps.start_ns + steps.duration_ns).max(initial=0))
    return max(last_step, int(record.requests.arrival_ns.max()) + 1)


def _default_warmup(record: RunRecord, loop: Loop) -> int:
    num = len(record.requests.arrival_ns)
    if loop.max_concurrency is not None:
        return min(max(-(-num // 10), loop.max_concurrency), num // 3)
    running = _running(record)
    level = float(np.median(running[len(running) // 2 :])) if len(running) else 0.0
    reached = record.steps.start_ns[int(np.argmax(running >= level))] if len(running) else 0
    before = int(np.searchsorted(_entry_ns(record), reached))
    return min(max(-(-num // 10), before), num // 3)


def _running(record: RunRecord) -> Ints:
    """(S,) requests that run on all servers together when each step begins."""
    steps, total = record.steps, np.zeros(len(record.steps.start_ns), np.int64)
    for replica in range(record.num_replicas):
        mine = np.flatnonzero(steps.replica == replica)
        if mine.size:
            last = mine[np.maximum(np.searchsorted(steps.start_ns[mine], steps.start_ns, side="right") - 1, 0)]
            end = steps.start_ns[last] + steps.duration_ns[last]
            total += np.where((steps.start_ns[last] <= steps.start_ns) & (end > steps.start_ns), steps.running[last], 0)
    return total


def _default_cooldown(num: int, loop: Loop) -> int:
    return num // 20 if loop.max_concurrency is None else min(loop.max_concurrency, num // 3)


def _open_edges(arrival_ns: Ints, warmup: int) -> tuple[int, int]:
    return int(arrival_ns[warmup]), int(arrival_ns[-1])


def _closed_edges(released_ns: Ints, warmup: int, concurrency: int) -> tuple[int, int]:
    """From finish number `warmup` to finish number N - C + 1; (0, 0) when there is no such stretch."""
    last = len(released_ns) - concurrency
    if last < 0 or last <= warmup - 1:
        return 0, 0
    return int(released_ns[warmup - 1]) if warmup else 0, int(released_ns[last])
