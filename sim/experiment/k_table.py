"""The best K of every batch size, from tokens per second: ties, ranges, and how narrow a range may be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rates:
    """Tokens per second and sequence of a steady decode step.

    Attributes:
        batches: (B,) batch sizes, ascending.
        ks: (K,) the K tried, ascending.
        rate: (B, K) with the drafter loaded; K = 0 pays the drafter's first pass.
        plain: (B,) without a drafter.
    """

    batches: Ints
    ks: Ints
    rate: Floats
    plain: Floats

    def of(self, ks: Ints) -> Floats:
        """(B,) the rate of one K per batch."""
        return np.asarray(self.rate[np.arange(len(self.batches)), np.searchsorted(self.ks, ks)])


@dataclass(frozen=True, slots=True)
class KRange:
    """K for batch sizes `first` to `last`, both included."""

    first: int
    last: int
    k: int


def best_ks(rates: Rates, tie: float) -> Ints:
    """(B,) the smallest K whose rate is within `tie` (a share, 0.01 = 1 %) of the best one's.

    Every K is tried: with graph padding or experts the rate is not unimodal in K.
    """
    enough = rates.rate >= (1.0 - tie) * rates.rate.max(axis=1, keepdims=True)
    return np.asarray(rates.ks[np.argmax(enough, axis=1)])


def ranges_of(ks: Ints, batches: Ints) -> tuple[KRange, ...]:
    """Runs of equal K; a range ends where the next begins, so that there are no gaps.

    Args:
        ks: (B,) K by batch.
        batches: (B,) ascending, starting with 1.
    """
    starts = np.flatnonzero(np.r_[True, ks[1:] != ks[:-1]])
    lasts = [*(int(batches[start]) - 1 for start in starts[1:]), int(batches[-1])]
    return tuple(KRange(int(batches[start]), last, int(ks[start])) for start, last in zip(starts, lasts, strict=True))


def widened(rates: Rates, ks: Ints, min_range: int) -> Ints:
    """K by batch with no range narrower than `min_range` batches, as far as there are that many.

    The narrowest range joins the neighbour whose K loses least there (summed log rate); repeated until none is left.
    """
    while True:
        ranges = ranges_of(ks, rates.batches)
        narrow = [i for i, one in enumerate(ranges) if one.last - one.first + 1 < min_range]
        if not narrow or len(ranges) == 1:
            return ks
        at = min(narrow, key=lambda i: (ranges[i].last - ranges[i].first, i))
        inside = (rates.batches >= ranges[at].first) & (rates.batches <= ranges[at].last)
        neighbours = [ranges[i].k for i in (at - 1, at + 1) if 0 <= i < len(ranges)]
        column = {k: int(np.searchsorted(rates.ks, k)) for k in neighbours}
        best = max(neighbours, key=lambda k: (float(np.log(rates.rate[inside, column[k]]).sum()), -k))
        ks = np.where(inside, best, ks)


def corrected(ks: Ints, batches: Ints, found: Sequence[tuple[int, int]]) -> Ints:
    """K by batch with what simulations found laid over it.

    A batch follows the simulated load nearest to it (by ratio), where that says another K than `ks` does there.

    Args:
        ks: (B,) from the closed form.
        batches: (B,) ascending.
        found: (batch size, K) of the simulated loads.
    """
    if not found:
        return ks
    loads = np.array([load for load, _ in found])
    nearest = np.abs(np.log(batches[:, None] / loads[None, :])).argmin(axis=1)
    result = ks.copy()
    for index, (load, k) in enumerate(found):
        if k != k_at(ranges_of(ks, batches), load):
            result[nearest == index] = k
    return result


def k_at(ranges: Sequence[KRange], batch: int) -> int:
    """K of a batch size; the last range has no end."""
    return next((one.k for one in ranges if batch <= one.last), ranges[-1].k)


def closed_at(ranges: Sequence[KRange], last: int) -> tuple[KRange, ...]:
    """The same ranges with the last one ending at `last`."""
    return (*ranges[:-1], KRange(ranges[-1].first, max(last, ranges[-1].last), ranges[-1].k))
