"""Where a decision flips as one input is scaled: a root of the paired log speed-up, with an interval."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from sim.experiment.curve import Curve, judge
from sim.experiment.paired import Gains

#: A flip point is looked for until it moves by less than this share.
TOLERANCE = 0.005
#: Runs at the flip point's neighbours, so that the curve is straight where its interval lies.
NEIGHBOUR = 1.1
#: Points that one flip may cost.
MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Flip:
    """A factor at which the decision turns.

    Attributes:
        factor: of the input.
        ci_low, ci_high: bootstrap interval over replicates; None where the curve does not resolve it.
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

    def curve(self) -> Curve | None:
        """The replicates that all factors have; None without any."""
        factors = [factor for factor in sorted(self.known) if self.known[factor]]
        common = sorted(set.intersection(*(set(self.known[factor]) for factor in factors))) if factors else []
        if not common:
            return None
        return Curve(np.array(factors), np.array([[self.known[f][r] for f in factors] for r in common]))


def find_flips(profile: Profile, start: Iterable[float], confidence: float) -> tuple[Flip, ...]:
    """Every flip between neighbouring factors of `start`, in order.

    Args:
        profile: what is known, and how to learn more.
        start: factors to begin with, both ends of the searched range among them.
        confidence: of the intervals.
    """
    for factor in sorted(start):
        profile.mean(factor)
    found = [_root(profile, *turn) for turn in profile.turns()]
    curve = profile.curve()
    crossings = judge(curve, confidence).crossings if curve is not None and found else ()
    flips = []
    for factor, direction in found:
        near = [c for c in crossings if c.direction == direction and c.bracket[0] <= factor <= c.bracket[1]]
        low, high = (near[0].ci_low, near[0].ci_high) if near else (None, None)
        flips.append(Flip(factor, low, high, direction))
    return tuple(flips)


def _root(profile: Profile, low: float, high: float) -> tuple[float, str]:
    """The factor at which the mean is 0, and its neighbours evaluated; linear in the logarithm of the factor."""
    direction = "gain_to_loss" if profile.mean(low) > 0 else "loss_to_gain"
    ends = (low, high)
    for _ in range(MOST_STEPS):
        a, b = profile.mean(low), profile.mean(high)
        place = low * (high / low) ** (a / (a - b))
        inside = min(max(place, low * (high / low) ** 0.1), high / (high / low) ** 0.1)
        if not math.isfinite(profile.mean(inside)):
            break
        moved = math.log(high / low) * abs(profile.mean(inside)) / abs(a - b)
        low, high = (inside, high) if (profile.mean(inside) > 0) == (a > 0) else (low, inside)
        if moved <= TOLERANCE or high / low <= 1.0 + TOLERANCE:
            break
    for factor in (inside / NEIGHBOUR, inside * NEIGHBOUR):
        if ends[0] < factor < ends[1]:
            profile.mean(factor)
    a, b = profile.mean(low), profile.mean(high)
    return low * (high / low) ** (a / (a - b)), direction
