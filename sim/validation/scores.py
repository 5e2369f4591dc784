"""Predicted beside measured, and what a set of such pairs comes to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Score:
    """One figure.

    Attributes:
        name: the case.
        group: cases that belong together: a source and what it measured.
        quantity: what was measured: `speed-up`, `plain`, `T_verify/T_plain`, a share, a latency.
        load: batch, concurrency or rate, as published.
        predicted, measured: in the same unit.
        low, high: the model's one-sigma band; None where it states none.
        naive: of datasheet peaks.
        peer: what another simulator says, where that is known.
        remarks: what was assumed.
    """

    name: str
    group: str
    quantity: str
    load: str
    predicted: float
    measured: float
    low: float | None = None
    high: float | None = None
    naive: float | None = None
    peer: float | None = None
    remarks: str = ""

    @property
    def error(self) -> float:
        """Relative error in per cent, or the difference in points for figures that are shares."""
        return _error(self.predicted, self)

    @property
    def naive_error(self) -> float | None:
        """The same of datasheet peaks."""
        return None if self.naive is None else _error(self.naive, self)

    @property
    def peer_error(self) -> float | None:
        """The same of another simulator."""
        return None if self.peer is None else _error(self.peer, self)

    @property
    def inside(self) -> bool | None:
        """Whether what was measured lies in the band; None without one."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


#: Quantities whose errors are differences in points, not relative.
SHARES = ("draft share", "verify share", "overhead share")


def _error(predicted: float, score: Score) -> float:
    if score.quantity in SHARES:
        return 100 * (predicted - score.measured)
    return 100 * (predicted / score.measured - 1)


class Summary(NamedTuple):
    """Errors of a set of scores, per cent (points for shares): mean absolute, signed mean, worst by size.

    Attributes:
        inside: share of those with a band that lie in it; None without any.
        naive, peer: mean absolute error of the others where they say something.
        beside_peer: ours on the cases of the peer.
    """

    points: int
    mape: float
    bias: float
    worst: float
    inside: float | None
    naive: float | None
    peer: float | None
    beside_peer: float | None


def summarise(scores: Iterable[Score]) -> Summary | None:
    """What a set comes to; None when it is empty."""
    scores = list(scores)
    if not scores:
        return None
    errors = np.array([score.error for score in scores])
    inside = [score.inside for score in scores if score.inside is not None]
    return Summary(
        points=len(scores),
        mape=float(np.abs(errors).mean()),
        bias=float(errors.mean()),
        worst=float(errors[np.abs(errors).argmax()]),
        inside=float(np.mean(inside)) if inside else None,
        naive=_mean_size(score.naive_error for score in scores),
        peer=_mean_size(score.peer_error for score in scores),
        beside_peer=_mean_size(score.error for score in scores if score.peer is not None),
    )


def _mean_size(errors: Iterable[float | None]) -> float | None:
    known = [abs(error) for error in errors if error is not None]
    return float(np.mean(known)) if known else None


class Gate(NamedTuple):
    """A target and what was found.

    Attributes:
        limit, found: largest size that is allowed, and what there is; None when the data have no such cases.
        unit: what follows the figures.
    """

    name: str
    limit: float
    found: float | None
    unit: str = " %"

    @property
    def met(self) -> bool | None:
        """Whether it is reached; None without data."""
        return None if self.found is None else abs(self.found) <= self.limit

    @property
    def verdict(self) -> str:
        """`met`, `missed by x` or `no data`."""
        if self.found is None:
            return "no data"
        return "met" if self.met else f"missed by {abs(self.found) - self.limit:.2g}{self.unit}"


def mean_gate(name: str, limit: float, scores: Sequence[Score], unit: str = " %") -> Gate:
    """On the mean absolute error."""
    found = summarise(scores)
    return Gate(name, limit, None if found is None else found.mape, unit)


def worst_gate(name: str, limit: float, scores: Sequence[Score], unit: str = " %") -> Gate:
    """On the largest error."""
    found = summarise(scores)
    return Gate(name, limit, None if found is None else abs(found.worst), unit)
