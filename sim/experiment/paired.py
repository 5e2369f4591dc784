"""How much better one arm is than another at one load or over several, paired by replicate."""

import math
from collections.abc import Mapping, Sequence

from sim.experiment.compare import Runs, is_lower_better, pairs
from sim.metrics.statistics import Interval, mean_interval

#: replicate -> log gain; above 0 the first arm is better.
Gains = Mapping[int, float]


def log_gains(runs: Runs, cell_id: str, arm: str, reference: str, metric: str) -> dict[int, float]:
    """Log ratios by replicate, arranged so that above 0 `arm` is better; pairs without positive values are left out."""
    sign = -1.0 if is_lower_better(metric) else 1.0
    found = pairs(runs, cell_id, arm, reference, metric)
    return {r: sign * math.log(a / b) for r, (a, b) in found.items() if 0 < a < math.inf and 0 < b < math.inf}


def mean_gains(gains: Sequence[Gains]) -> dict[int, float]:
    """The mean over several loads, for the replicates that all of them have."""
    common = sorted(set.intersection(*(set(one) for one in gains))) if gains else []
    return {r: math.fsum(one[r] for one in gains) / len(gains) for r in common}


def gain_interval(gains: Gains, confidence: float) -> Interval | None:
    """The ratio (geometric mean) with its t-interval over replicates; None without pairs."""
    if not gains:
        return None
    logs = mean_interval(list(gains.values()), confidence)
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Interval(math.exp(logs.estimate), low, high, logs.num)


def as_json(interval: Interval | None) -> dict[str, object] | None:
    """An interval for a document."""
    if interval is None:
        return None
    return {"estimate": interval.estimate, "ci_low": interval.low, "ci_high": interval.high, "num_pairs": interval.num}
