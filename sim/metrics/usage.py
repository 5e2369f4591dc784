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
    arrived = np.sort(record.requests.arrival_ns[record.requests.arrival_ns >= 0])
    left = release_times(record)
    before = np.searchsorted(arrived, times_ns, side="right") - np.searchsorted(left, times_ns, side="right")
    return before.astype(np.int64)


def is_saturated(record: RunRecord) -> bool:
    """Open loop: does the backlog still grow over the last half of the arrivals?

    True when (a) more than 2 % of the requests that arrive in that half add to the backlog (completions below 98 % of
    the offered rate), (b) the slope of the backlog is positive beyond chance (t-test over 20 means of time) and
    (c) the fitted rise exceeds a tenth of the mean backlog. The last two keep noise of a stable queue from flagging.
    """
    arrivals = np.sort(record.requests.arrival_ns[record.requests.arrival_ns >= 0])
    half = arrivals[len(arrivals) // 2 :]
    if len(arrivals) < FEWEST_ARRIVALS or half[-1] <= half[0]:
        return False
    grid = np.linspace(half[0], half[-1], 20 * 16).astype(np.int64)
    backlog = in_system(record, grid).astype(np.float64).reshape(20, 16).mean(axis=1)
    growth = backlog[-1] - backlog[0]
    slope, error = _slope(backlog)
    grows = slope > t_quantile(1 - SATURATION_LEVEL, 18) * error
    return bool(growth > 0.02 * len(half) and grows and slope * 20 > 0.1 * backlog.mean())


def _slope(values: Floats) -> tuple[float, float]:
    """Least-squares slope per index and its standard error."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(x @ values) / float(x @ x)
    rest = values - values.mean() - slope * x
    return slope, float(np.sqrt(rest @ rest / (len(values) - 2) / (x @ x)))
