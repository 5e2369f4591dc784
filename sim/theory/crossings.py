"""Where a speed-up curve crosses 1: all sign changes, with direction. Used by break-even searches and theory."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Direction = Literal["stops_paying", "starts_paying"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """One change of sign of log speed-up.

    Attributes:
        value: where, in the unit of the axis.
        direction: `stops_paying` when the speed-up falls below 1 there, `starts_paying` when it rises above.
        bracket: the two tested values around it (equal to `value` twice for closed forms).
    """

    value: float
    direction: Direction
    bracket: tuple[float, float]


def crossings(xs: Sequence[float], ys: Sequence[float]) -> tuple[Crossing, ...]:
    """All sign changes of `ys`, interpolated linearly in log2 x.

    A point with y = 0 is a crossing only when the signs on its two sides differ; a curve that touches 0 does not cross.

    Args:
        xs: strictly increasing positive values of the axis (batch, load, ...).
        ys: log speed-up at each.

    Raises:
        ValueError: unequal lengths, values that are not finite, or xs not positive and increasing.
    """
    _check(xs, ys)
    signed = [i for i, y in enumerate(ys) if y != 0]
    pairs = itertools.pairwise(signed)
    return tuple(_between(xs, ys, i, j) for i, j in pairs if (ys[i] > 0) != (ys[j] > 0))


def _check(xs: Sequence[float], ys: Sequence[float]) -> None:
    if len(xs) != len(ys) or not all(math.isfinite(v) for v in (*xs, *ys)):
        raise ValueError("crossings needs as many finite speed-ups as axis values")
    if any(x <= 0 for x in xs) or any(a >= b for a, b in itertools.pairwise(xs)):
        raise ValueError("crossings needs positive, strictly increasing axis values")


def _between(xs: Sequence[float], ys: Sequence[float], i: int, j: int) -> Crossing:
    direction: Direction = "stops_paying" if ys[i] > 0 else "starts_paying"
    if j > i + 1:  # exact zeros between the two signs: the middle one
        value = xs[(i + j) // 2]
    else:
        share = ys[i] / (ys[i] - ys[j])
        value = 2.0 ** (math.log2(xs[i]) + share * (math.log2(xs[j]) - math.log2(xs[i])))
        value = min(max(value, xs[i]), xs[j])  # rounding must not carry it out of the bracket
    return Crossing(float(value), direction, (float(xs[i]), float(xs[j])))
