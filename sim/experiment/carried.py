"""What load a server carries within an SLO: from the rows of runs at several loads, replicate by replicate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, Literal

from sim.metrics.statistics import Interval, mean_interval, paired_ratio
from sim.metrics.summary import Row
from sim.metrics.usage import FEWEST_ARRIVALS, HARDLY_ANY

Judgement = Literal["carried", "missed", "too short"]
Edge = Literal["below", "above", "too short"]
#: A tested load with an arm's rows by replicate.
Point = tuple[float, Mapping[int, Row]]

#: Which percentile of a latency column says most about an SLO: the highest that it does not exceed.
_PERCENTILES = ((99.0, "p99"), (95.0, "p95"), (0.0, "p90"))

#: A run tells whether a server keeps up when it fills the system so many times over: it takes one to fill it, and the
#: queue is judged by the second half.
FEWEST_TURNOVERS = 4
#: Where there are too few arrivals for that judgement only the size of the backlog speaks: growth by a share e of the
#: arrivals leaves 2 / e times as many requests as the mean backlog, so 24 turnovers hide an overload of 9 % at most.
TURNOVERS_OF_FEW = 24


@dataclass(frozen=True, slots=True)
class Limits:
    """The SLO: limits in ms by name (`ttft`, `tpot`, `e2el`), and the share of requests that has to meet them all."""

    limits: Mapping[str, float]
    share: float

    def margin(self, row: Row) -> float:
        """Good requests beyond those needed, as a share of the measured ones; >= 0 meets the SLO."""
        return _number(row["goodput_frac"]) - self.share

    def judged(self, row: Row) -> Judgement:
        """Whether a run kept up with its load and met the SLO, as far as a run of its length can tell.

        A missed limit needs no length: latencies only get worse while a server fills.
        """
        if self.margin(row) < 0:
            return "missed"
        if too_short(row):
            return "too short"
        return "missed" if row["saturated"] else "carried"

    def carried(self, row: Row) -> bool:
        """Whether a run was seen to keep up with its load and meet the SLO."""
        return self.judged(row) == "carried"

    def tightest(self, row: Row) -> str:
        """The limit that the tail of a run exceeds most, or comes closest to."""
        tail = next(name for least, name in _PERCENTILES if 100 * self.share >= least)
        excess = {name: _number(row[f"{tail}_{name}_ms"]) / limit for name, limit in self.limits.items()}
        return max(excess, key=excess.__getitem__)


def too_short(row: Row) -> bool:
    """Whether a run ends before it can tell whether the server keeps up."""
    if not row["steady"]:
        return True
    running, waiting = _number(row["mean_running"]), _number(row["mean_waiting"])
    if row["max_concurrency"] is not None or (row["saturated"] and waiting > HARDLY_ANY * running):
        return False  # a closed loop always keeps up, once it is steady; a queue behind a full server grows
    requests = sum(_number(row[name]) for name in ("num_warmup", "num_measured", "num_cooldown"))
    needed = FEWEST_TURNOVERS if requests >= FEWEST_ARRIVALS else TURNOVERS_OF_FEW
    return requests < needed * (running + waiting)


@dataclass(frozen=True, slots=True)
class Bracket:
    """Where a replicate stops to carry the load: between two neighbouring tested loads.

    Attributes:
        low: highest load below which every tested load is carried; 0 when the lowest is not.
        high: the next one, which is not carried; infinite when all are.
        estimate: in between, where the margin would be 0; NaN with an open end.
        too_short: whether the run at `high` ended before it could tell, rather than fail.
    """

    low: float
    high: float
    estimate: float
    too_short: bool = False

    @property
    def open_end(self) -> Edge | None:
        """On which side of the tested loads that can be judged the answer lies; None when it is between them."""
        if self.too_short:
            return "too short"
        return "below" if self.low == 0 else "above" if math.isinf(self.high) else None


def bracket(points: Sequence[tuple[float, Row]], limits: Limits) -> Bracket:
    """The first tested load that is not seen to be carried, and the one before it.

    Args:
        points: loads in ascending order with their rows, all of one arm and replicate.
        limits: the SLO.
    """
    low: tuple[float, Row] | None = None
    for load, row in points:
        judged = limits.judged(row)
        if judged == "too short":
            return Bracket(low[0] if low else 0.0, load, math.nan, too_short=True)
        if judged == "missed":
            return Bracket(0.0, load, math.nan) if low is None else _between(low, (load, row), limits)
        low = load, row
    return Bracket(low[0] if low else 0.0, math.inf, math.nan)


def _between(low: tuple[float, Row], high: tuple[float, Row], limits: Limits) -> Bracket:
    """Linear interpolation of the margin over log load; the middle when the queue grows and the SLO is still met."""
    above, below = limits.margin(low[1]), limits.margin(high[1])
    place = above / (above - below) if below < 0 else 0.5
    estimate = math.exp(math.log(low[0]) + place * math.log(high[0] / low[0]))
    return Bracket(low[0], high[0], estimate)


@dataclass(frozen=True, slots=True)
class Carried:
    """The highest load of one arm.

    Attributes:
        brackets: by replicate.
        interval: geometric mean over the replicates with its t-interval; None when one of them has an open end.
        limited_by: what fails at the first load that is not carried: `saturation`, or the name of a limit; "" when
            a replicate carries all, or its run is too short to tell.
    """

    brackets: tuple[Bracket, ...]
    interval: Interval | None
    limited_by: str

    @property
    def open_end(self) -> Edge | None:
        """The open end of the first replicate that has one; runs that are too short come first."""
        ends = [one.open_end for one in self.brackets if one.open_end]
        return "too short" if "too short" in ends else next(iter(ends), None)

    @property
    def spread(self) -> float:
        """Standard deviation of the replicates' log estimates; 0 where fewer than two are known."""
        logs = [math.log(one.estimate) for one in self.brackets if not one.open_end]
        return stdev(logs) if len(logs) > 1 else 0.0

    @property
    def half_width(self) -> float:
        """Of the interval, relative to the estimate; infinite without an interval."""
        found = self.interval
        if found is None or found.low is None or found.high is None:
            return math.inf
        return (found.high - found.low) / (2.0 * found.estimate)


def carried(points: Sequence[Point], limits: Limits, confidence: float) -> Carried:
    """The highest load that an arm carries.

    Args:
        points: loads in ascending order, each with the arm's rows by replicate.
        limits: the SLO.
        confidence: of the interval.
    """
    replicates = sorted(set.intersection(*(set(rows) for _, rows in points))) if points else []
    brackets = tuple(bracket([(load, rows[rep]) for load, rows in points], limits) for rep in replicates)
    interval = None
    if brackets and not any(one.open_end for one in brackets):
        interval = _geometric(mean_interval([math.log(one.estimate) for one in brackets], confidence))
    stopped = all(one.open_end in (None, "below") for one in brackets)
    failing = [
        rows[rep]
        for rep, one in zip(replicates, brackets, strict=True)
        for load, rows in points
        if stopped and load == one.high
    ]
    return Carried(brackets, interval, _reason(failing, limits))


def _geometric(logs: Interval) -> Interval:
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Interval(math.exp(logs.estimate), low, high, logs.num)


def _reason(failing: Sequence[Row], limits: Limits) -> str:
    """What most of the runs fail by; a queue that grows comes first, because latencies follow from it."""
    if not failing:
        return ""
    if 2 * sum(bool(row["saturated"]) for row in failing) > len(failing):
        return "saturation"
    names = [limits.tightest(row) for row in failing]
    return max(sorted(set(names)), key=names.count)


def ratio(arm: Carried, baseline: Carried, confidence: float) -> Interval | None:
    """Load of the arm / load of the baseline, paired by replicate; None when either is open."""
    if arm.interval is None or baseline.interval is None:
        return None
    ours, theirs = ([one.estimate for one in side.brackets] for side in (arm, baseline))
    num = min(len(ours), len(theirs))
    return paired_ratio(ours[:num], theirs[:num], confidence)


def _number(value: Any) -> float:
    """A metric as a number; one that nobody has is infinite: no measured request got that far."""
    return math.inf if value is None else float(value)
