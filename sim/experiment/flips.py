"""Where a decision flips as one input is scaled: a root of the paired log speed-up, with an interval."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sim.experiment.paired import Gains
from sim.metrics.statistics import mean_interval
from sim.theory.crossings import crossings

#: A flip point is looked for until it moves by less than this share.
TOLERANCE = 0.005
#: Runs at the flip point's neighbours, so that the curve is straight where its interval lies.
NEIGHBOUR = 1.1
#: Ends of an interval of no width differ by this much from the point itself.
ROUNDING = 1e-9
#: Points that one flip may cost.
MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Flip:
    """A factor at which the decision turns.

    Attributes:
        factor: of the input.
        ci_low, ci_high: factors at which the gain cannot be told from none; None on a side without an end.
        direction: `gain_to_loss` or `loss_to_gain`, as the factor grows.
    """

    factor: float
    ci_low: float | None
    ci_high: float | None
    direction: str


class Profile:
    """Log speed-ups by factor; every factor is evaluated once.

    Args:
        gains: factor -> log speed-up by replicate.
    """

    def __init__(self, gains: Callable[[float], Gains]) -> None:
        self._gains, self.known = gains, dict[float, Gains]()

    def mean(self, factor: float) -> float:
        """Mean log speed-up; evaluated when it is not known."""
        gains = self.known.setdefault(factor, {}) or self._gains(factor)
        self.known[factor] = gains
        return math.fsum(gains.values()) / len(gains) if gains else math.nan

    def turns(self) -> list[tuple[float, float]]:
        """Neighbouring factors with means of opposite sign."""
        factors = sorted(self.known)
        pairs = itertools.pairwise(factor for factor in factors if math.isfinite(self.mean(factor)))
        return [(a, b) for a, b in pairs if (self.mean(a) > 0) != (self.mean(b) > 0)]


def find_flips(profile: Profile, start: Iterable[float], confidence: float) -> tuple[Flip, ...]:
    """Every flip between neighbouring factors of `start`, in order.

    Args:
        profile: what is known, and how to learn more.
        start: factors to begin with, both ends of the searched range among them.
        confidence: of the intervals.
    """
    for factor in sorted(start):
        profile.mean(factor)
    for turn in profile.turns():
        _refine(profile, *turn)
    means = {factor: mean for factor in sorted(profile.known) if math.isfinite(mean := profile.mean(factor))}
    found = crossings(list(means), list(means.values()))
    directions = {"stops_paying": "gain_to_loss", "starts_paying": "loss_to_gain"}
    return tuple(
        Flip(one.value, *_interval(profile, one.value, one.direction, confidence), directions[one.direction])
        for one in found
    )


def _interval(profile: Profile, root: float, direction: str, confidence: float) -> tuple[float | None, float | None]:
    """The factors around a root whose t-interval of the mean covers 0, linear between the known ones.

    The true root is among them as often as a t-interval covers its mean. None on a side where that does not end.
    """
    factors = [factor for factor in sorted(profile.known) if len(profile.known[factor]) > 1]
    if len(factors) < 2:
        return None, None
    bands = [mean_interval(list(profile.known[factor].values()), confidence) for factor in factors]
    sign = 1.0 if direction == "stops_paying" else -1.0  # turned so that the curve falls through 0 at the root
    lower = [sign * float((band.low if sign > 0 else band.high) or 0.0) for band in bands]
    upper = [sign * float((band.high if sign > 0 else band.low) or 0.0) for band in bands]
    before = [
        c.value for c in crossings(factors, lower) if c.value <= root * (1 + ROUNDING) and c.direction == "stops_paying"
    ]
    after = [
        c.value for c in crossings(factors, upper) if c.value >= root * (1 - ROUNDING) and c.direction == "stops_paying"
    ]
    return max(before, default=None), min(after, default=None)


def _refine(profile: Profile, low: float, high: float) -> None:
    """Evaluate factors ever closer to where the mean is 0 (linear in the logarithm of the factor), and neighbours."""
    ends, inside = (low, high), low
    for _ in range(MOST_STEPS):
        a, b = profile.mean(low), profile.mean(high)
        place = low * (high / low) ** (a / (a - b))
        inside = min(max(place, low * (high / low) ** 0.1), high / (high / low) ** 0.1)
        if not math.isfinite(profile.mean(inside)):
            return
        moved = math.log(high / low) * abs(profile.mean(inside)) / abs(a - b)
        low, high = (inside, high) if (profile.mean(inside) > 0) == (a > 0) else (low, inside)
        if moved <= TOLERANCE or high / low <= 1.0 + TOLERANCE:
            break
    for factor in (inside / NEIGHBOUR, inside * NEIGHBOUR):
        if ends[0] < factor < ends[1]:
            profile.mean(factor)
