"""What the engine was doing: time-weighted batch, queue and KV use, where the step time went, saturation.

A step's state (running, waiting, KV blocks) holds from its start to its end; between steps the engine is idle and the
state is zero. Averages are over the whole window, idle time included. Several servers count together: their running and
waiting requests and their KV blocks are added up, step by step means are over the steps of all.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sim.metrics.record import Bools, Floats, Ints, RunRecord, StepRecord
from sim.metrics.statistics import t_quantile
from sim.metrics.window import Window, release_times

#: Fewest arrivals in which a growing queue can be told from a stable one.
FEWEST_ARRIVALS = 80
#: Waiting requests per running one up to which a server is said to have no queue.
HARDLY_ANY = 0.01
#: Probability under which the slope of a saturated queue may be taken for chance.
SATURATION_LEVEL = 0.01


def step_ends(steps: StepRecord) -> Ints:
    """End of every step."""
    return steps.start_ns + steps.duration_ns


def steps_in(steps: StepRecord, window: Window) -> Bools:
    """(S,) steps that end in the window."""
    return window.contains(step_ends(steps))


def busy_ns(steps: StepRecord, window: Window) -> Floats:
    """(S,) nanoseconds of each step that lie in the window."""
    inside = np.minimum(step_ends(steps), window.end_ns) - np.maximum(steps.start_ns, window.start_ns)
    return np.asarray(np.maximum(inside, 0), np.float64)


def time_mean(values: ArrayLike, weights_ns: Floats, window: Window) -> float:
    """Average over the window of a per-step state."""
    # Not a dot product: BLAS would start threads, and its rounding depends on how many.
    return float((np.asarray(values, np.float64) * weights_ns).sum()) / (window.end_ns - window.start_ns)


def time_quantile(steps: StepRecord, values: Ints, window: Window, quantile: float) -> float:
    """Smallest value that the state of all servers together does not exceed for this share of the window."""
    times, totals = _total_state(steps, values)
    inside = np.clip(times, window.start_ns, window.end_ns)
    weights_ns = np.diff(inside, append=window.end_ns).astype(np.float64)
    idle = max(window.end_ns - window.start_ns - float(weights_ns.sum()), 0.0)
    levels = np.concatenate(([0], totals))
    order = np.argsort(levels, kind="stable")
    reached = np.cumsum(np.concatenate(([idle], weights_ns))[order])
    at = int(np.searchsorted(reached, quantile * reached[-1] * (1 - 1e-12)))
    return float(levels[order][min(at, len(levels) - 1)])


def _total_state(steps: StepRecord, values: Ints) -> tuple[Ints, Ints]:
    """When the sum of a state over all servers may change, ascending, and its value from then on."""
    times = np.concatenate((step_ends(steps), steps.start_ns))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(np.concatenate((-values, values))[order])


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Shares of the step time of some steps; they add up to 1.

    A pass that both prefills and decodes is split by tokens.
    """

    draft: float
    verify: float
    prefill: float
    overhead: float


def time_shares(steps: StepRecord, chosen: Bools) -> TimeShares | None:
    """Where the time of the chosen steps went; None when there are none."""
    total = int(steps.duration_ns[chosen].sum())
    if not total:
        return None
    draft, target = int(steps.draft_ns[chosen].sum()), int(steps.target_ns[chosen].sum())
    filling = steps.prefill_tokens[chosen] / np.maximum(steps.num_tokens[chosen], 1)
    prefill = float((filling * steps.target_ns[chosen]).sum())
    return TimeShares(draft / total, (target - prefill) / total, prefill / total, 1 - (draft + target) / total)


def memory_bound_share(steps: StepRecord, chosen: Bools) -> float | None:
    """Share of the target's time spent in passes that memory bounds; None without target time."""
    target = steps.target_ns[chosen]
    total = int(target.sum())
    return int(target[steps.memory_bound[chosen]].sum()) / total if total else None


def extrapolated_shares(steps: StepRecord, chosen: Bools) -> tuple[float, float]:
    """Shares of the steps, and of the target's time, outside of what the cost model was given."""
    count, total = int(chosen.sum()), int(steps.target_ns[chosen].sum())
    if steps.extrapolated is None or not total:
        return 0.0, 0.0
    outside = chosen & steps.extrapolated
    return int(outside.sum()) / count, int(steps.target_ns[outside].sum()) / total


def in_system(record: RunRecord, times_ns: Ints) -> Ints:
    """Requests that had arrived and not left at each time."""
    return _in_system(record, times_ns, np.ones(len(record.requests.arrival_ns), np.bool_))


def _in_system(record: RunRecord, times_ns: Ints, chosen: Bools) -> Ints:
    arrivals = record.requests.arrival_ns[chosen]
    arrived = np.sort(arrivals[arrivals >= 0])
    left = release_times(record, chosen)
    before = np.searchsorted(arrived, times_ns, side="right") - np.searchsorted(left, times_ns, side="right")
    return before.astype(np.int64)


def is_saturated(record: RunRecord) -> bool:
    """Open loop: does the backlog grow without end, judged by the last half of the arrivals?

    A server that keeps up catches up now and then. So it is saturated when (a) the waiting queue of a server is never
    empty in that half, and its backlog is larger at the end than at the start. A slope tells less: the backlog of a
    stable queue wanders for long stretches. A server that admits whatever comes has no queue to be emptied; there (b)
    the slope of the backlog has to be positive beyond chance (t-test over 20 means of time, its error corrected for the
    correlation of neighbours), and the rise above a tenth of the mean backlog and 2 % of the arrivals.
    """
    arrivals = np.sort(record.requests.arrival_ns[record.requests.arrival_ns >= 0])
    half = arrivals[len(arrivals) // 2 :]
    if len(arrivals) < FEWEST_ARRIVALS or half[-1] <= half[0]:
        return False
    grid = np.linspace(half[0], half[-1], 20 * 16).astype(np.int64)
    inside = (step_ends(record.steps) > half[0]) & (record.steps.start_ns < half[-1])
    if record.steps.waiting[inside].sum() > HARDLY_ANY * record.steps.running[inside].sum():
        return any(_never_catches_up(record, replica, inside, grid) for replica in range(record.num_replicas))
    backlog = _time_means(in_system(record, grid))
    growth = backlog[-1] - backlog[0]
    slope, error = _slope(backlog)
    grows = slope > t_quantile(1 - SATURATION_LEVEL, 18) * error
    return bool(growth > 0.02 * len(half) and grows and slope * 20 > 0.1 * backlog.mean())


def _never_catches_up(record: RunRecord, replica: int, inside: Bools, grid: Ints) -> bool:
    """Whether the queue of one server is never empty, and requests in it grow in number."""
    waiting = record.steps.waiting[inside & (record.steps.replica == replica)]
    if not waiting.all() or not waiting.size:
        return False
    backlog = _time_means(_in_system(record, grid, record.requests.replica == replica))
    return bool(backlog[-1] > backlog[0])


def _time_means(values: Ints) -> Floats:
    means: Floats = values.astype(np.float64).reshape(20, 16).mean(axis=1)
    return means


def _slope(values: Floats) -> tuple[float, float]:
    """Least-squares slope per index and its standard error, wider by what neighbours have in common.

    n residuals of lag-one correlation r > 0 tell as much as n (1 - r) / (1 + r) independent ones.
    """
    x = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(x @ values) / float(x @ x)
    rest = values - values.mean() - slope * x
    squares = float(rest @ rest)
    common = min(max(float(rest[1:] @ rest[:-1]) / squares, 0.0), 0.95) if squares else 0.0
    error = np.sqrt(squares / (len(values) - 2) / (x @ x))
    return slope, float(error * np.sqrt((1 + common) / (1 - common)))
