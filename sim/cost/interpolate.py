"""Interpolating measured step times in batch, new tokens and context, all on logarithmic scales. Used by `table`.

The grid may be ragged (large batches with short contexts only). It is read from the inside out: along the batch at a
measured (new tokens, context), then along the context, then along the new tokens. Every value is a mean of measured
logarithms, so it lies between the measurements around it and rises where they rise.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from sim.cost.step_times import StepTime


class Curve(NamedTuple):
    """A piecewise linear function: increasing places and the values there."""

    xs: list[float]
    ys: list[float]

    def covers(self, x: float) -> bool:
        """Whether x lies between the first place and the last."""
        return self.xs[0] <= x <= self.xs[-1]

    def at(self, x: float) -> float:
        """Value at x; the end values outside."""
        xs, ys = self.xs, self.ys
        if x <= xs[0]:
            return ys[0]
        if x >= xs[-1]:
            return ys[-1]
        right = bisect_right(xs, x)
        left = right - 1
        return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


class Place(NamedTuple):
    """Where the grid has a curve over the context."""

    num_seqs: float
    new_tokens: float


def context_scale(context_tokens: float) -> float:
    """The scale on which contexts are interpolated: a logarithm that knows 0."""
    return math.log1p(context_tokens)


class StepGrid:
    """Measured times of one kind of pass; repeats of a point count as their median.

    Args:
        steps: at least one.
    """

    def __init__(self, steps: Iterable[StepTime]) -> None:
        points: dict[tuple[int, int, int], list[float]] = {}
        for step in steps:
            points.setdefault((step.new_tokens, step.context_tokens, step.num_seqs), []).append(step.seconds)
        #: new tokens -> context -> log time over log batch
        self._curves: dict[int, dict[int, Curve]] = {}
        for new, context, batch in sorted(points):
            curve = self._curves.setdefault(new, {}).setdefault(context, Curve([], []))
            curve.xs.append(math.log(batch))
            curve.ys.append(math.log(median(points[new, context, batch])))
        self.new_tokens = list(self._curves)
        self._batches = {
            new: sorted({round(math.exp(x)) for curve in curves.values() for x in curve.xs})
            for new, curves in self._curves.items()
        }

    def over_context(self, place: Place) -> Curve | None:
        """Log time over the scaled context at a batch and number of new tokens; None outside the measured ones."""
        measured = self.new_tokens
        if not measured[0] <= place.new_tokens <= measured[-1]:
            return None
        right = min(bisect_right(measured, place.new_tokens), len(measured) - 1)
        low = measured[right - 1] if place.new_tokens < measured[right] else measured[right]
        if low == place.new_tokens:
            return self._at_measured(low, place.num_seqs)
        curves = [self._at_measured(new, place.num_seqs) for new in (low, measured[right])]
        share = math.log(place.new_tokens / low) / math.log(measured[right] / low)
        return _mixed(curves[0], curves[1], share)

    def nearest(self, place: Place) -> Place:
        """The place closest to this one, in ratios, that has a curve: measured new tokens, a batch inside."""
        new = min(self.new_tokens, key=lambda known: abs(math.log(known / place.new_tokens)))
        here = Place(place.num_seqs, new)
        if self.over_context(here) is not None:
            return here
        batch = min(self._batches[new], key=lambda known: abs(math.log(known / place.num_seqs)))
        return Place(batch, new)

    def _at_measured(self, new_tokens: int, num_seqs: float) -> Curve | None:
        batch = math.log(num_seqs)
        known = [
            (context_scale(context), curve.at(batch))
            for context, curve in self._curves[new_tokens].items()
            if curve.covers(batch)
        ]
        return Curve(*map(list, zip(*known, strict=True))) if known else None


def _mixed(a: Curve | None, b: Curve | None, share: float) -> Curve | None:
    """(1 - share) a + share b, where both are known."""
    if a is None or b is None:
        return None
    first, last = max(a.xs[0], b.xs[0]), min(a.xs[-1], b.xs[-1])
    if first > last:
        return None
    inside: Sequence[float] = sorted({first, last, *(x for x in (*a.xs, *b.xs) if first < x < last)})
    return Curve(list(inside), [(1.0 - share) * a.at(x) + share * b.at(x) for x in inside])
