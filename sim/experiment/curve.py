"""Where a measured speed-up curve crosses 1, and how sure that is.

The curve is known at a few values of the axis, each with several replicates. A crossing is reported only between two
values at which the sign is resolved (the t-interval of the log speed-up lies on one side of 0); it is interpolated
linearly in log2 of the axis, with a bootstrap interval over replicates. Nothing is said outside the tested range.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.metrics.statistics import Interval, bootstrap_means, mean_interval, percentile_interval
from sim.rng import Streams
from sim.theory.crossings import Crossing, crossings

Floats = NDArray[np.float64]
Status = Literal["crosses", "always", "never", "indeterminate"]

#: Resamples of the bootstrap: the 2.5 % points of 1000 are good to a few per cent of the interval's width.
DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Curve:
    """Log speed-up over an axis.

    Attributes:
        x: (X,) tested values, positive and increasing.
        logs: (R, X) log speed-up by replicate; above 0 the arm is better.
    """

    x: Floats
    logs: Floats

    @property
    def mean(self) -> Floats:
        """(X,) mean over replicates: the log of the geometric mean."""
        return np.asarray(self.logs.mean(axis=0), np.float64)


@dataclass(frozen=True, slots=True)
class FoundCrossing:
    """A crossing with its bootstrap interval."""

    value: float
    direction: Literal["gain_to_loss", "loss_to_gain"]
    bracket: tuple[float, float]
    ci_low: float
    ci_high: float
    num_pairs: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a curve says.

    Attributes:
        status: `crosses` (somewhere in the tested range), `always` or `never` pays over all of it, or `indeterminate`.
        crossings: in order of the axis; empty unless `crosses`.
        unresolved: tested values at which the sign is not resolved.
    """

    status: Status
    crossings: tuple[FoundCrossing, ...]
    unresolved: tuple[float, ...]


def judge(curve: Curve, confidence: float) -> Verdict:
    """The verdict on a measured curve.

    `always` and `never` need a resolved sign at both ends of the range and no resolved sign against them between.
    """
    signs = [_sign(mean_interval(column.tolist(), confidence)) for column in curve.logs.T]
    resolved = [i for i, sign in enumerate(signs) if sign]
    unresolved = tuple(float(curve.x[i]) for i, sign in enumerate(signs) if not sign)
    turns = [(i, j) for i, j in itertools.pairwise(resolved) if signs[i] != signs[j]]
    if turns:
        return Verdict("crosses", tuple(_between(curve, i, j, confidence) for i, j in turns), unresolved)
    if not resolved or resolved[0] != 0 or resolved[-1] != len(signs) - 1:
        return Verdict("indeterminate", (), unresolved)
    return Verdict("always" if signs[0] > 0 else "never", (), unresolved)


def _sign(interval: Interval) -> int:
    """+1, -1, or 0 when the interval covers 0 or there is none (one replicate)."""
    if interval.low is None or interval.high is None:
        return 0
    return 1 if interval.low > 0 else -1 if interval.high < 0 else 0


def _between(curve: Curve, i: int, j: int, confidence: float) -> FoundCrossing:
    x, part = curve.x[i : j + 1].tolist(), curve.logs[:, i : j + 1]
    pays_first = bool(part[:, 0].mean() > 0)

    def place(logs: Floats) -> float:
        return _middle(crossings(x, logs.tolist()), pays_first) or _clamped(logs, x, pays_first)

    uniforms = Streams(0).per_row("break-even bootstrap", DRAWS * len(part)).reshape(DRAWS, len(part))
    low, high = percentile_interval(place, bootstrap_means(part, confidence, uniforms), confidence)
    direction: Literal["gain_to_loss", "loss_to_gain"] = "gain_to_loss" if pays_first else "loss_to_gain"
    return FoundCrossing(place(part.mean(axis=0)), direction, (x[0], x[-1]), low, high, len(part))


def _middle(found: Sequence[Crossing], pays_first: bool) -> float | None:
    """The middle one of the crossings in the wanted direction."""
    wanted = [c.value for c in found if c.direction == ("stops_paying" if pays_first else "starts_paying")]
    return wanted[len(wanted) // 2] if wanted else None


def _clamped(logs: Floats, x: Sequence[float], pays_first: bool) -> float:
    """A resample that keeps its sign crosses beyond the bracket: its end on that side."""
    keeps_first_sign = (logs[0] > 0) == pays_first
    return x[-1] if keeps_first_sign else x[0]


def shifted_crossing(curve: Curve, shift: Floats, near: FoundCrossing) -> float | None:
    """Where the mean curve, moved by `shift` (X,), crosses in the same direction; the one nearest to `near`.

    Returns:
        None when the moved curve does not cross in the tested range.
    """
    wanted = "stops_paying" if near.direction == "gain_to_loss" else "starts_paying"
    found = [c.value for c in crossings(curve.x.tolist(), (curve.mean + shift).tolist()) if c.direction == wanted]
    return min(found, key=lambda value: abs(np.log(value / near.value)), default=None)
