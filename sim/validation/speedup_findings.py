"""What the curves of the suite `speedup` say together: the best K, where it stops paying, which way it goes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sim.theory.crossings import crossings
from sim.validation.case import Case
from sim.validation.speedup import Found, group_of

#: Curves that move by less say nothing about their direction.
MOVES = 0.05


class KSweep(NamedTuple):
    """Chains of several K at one load.

    Attributes:
        ks: those that were measured.
        predicted, measured: the best of them.
        regret: speed-up lost by taking the predicted one, as measured, per cent.
    """

    name: str
    ks: tuple[int, ...]
    predicted: int
    measured: int
    regret: float


class Trend(NamedTuple):
    """How the speed-up goes from the smallest to the largest load, as a ratio; `right`: the sign, where it moves."""

    name: str
    predicted: float
    measured: float

    @property
    def moves(self) -> bool:
        """Whether what was measured moves."""
        return abs(self.measured - 1) > MOVES

    @property
    def right(self) -> bool:
        """Whether both move the same way."""
        return (self.predicted > 1) == (self.measured > 1)


class Stop(NamedTuple):
    """Load at which speculation stops paying; None: not within the measured loads."""

    name: str
    predicted: float | None
    measured: float | None
    tree: bool
    largest: float

    @property
    def factor(self) -> float | None:
        """How far apart, above 1; None where only one of them crosses."""
        if self.predicted is None or self.measured is None:
            return None
        return max(self.predicted / self.measured, self.measured / self.predicted)


def k_sweeps(found: Iterable[Found]) -> list[KSweep]:
    """Sweeps over three K or more with scored chains."""
    groups: dict[tuple[object, ...], list[Found]] = defaultdict(list)
    for one in found:
        if one.speedup and not one.case.tree and one.case.drive != "steps":
            groups[(*one.case.sweep, one.case.load)].append(one)
    return [_sweep(group) for group in groups.values() if len({one.case.num_drafts for one in group}) >= 3]


def _sweep(group: Sequence[Found]) -> KSweep:
    scores = {one.case.num_drafts: one.speedup for one in group if one.speedup}
    ours = max(scores, key=lambda k: scores[k].predicted)
    best = max(scores, key=lambda k: scores[k].measured)
    regret = 100 * (1 - scores[ours].measured / scores[best].measured)
    case = group[0].case
    name = f"{group_of(case)}, {case.row.method}, {case.row.dataset}, load {case.row.load}"
    return KSweep(name, tuple(sorted(scores)), ours, best, regret)


class CurvePoint(NamedTuple):
    """A load of a curve.

    Attributes:
        low, high: the model's one-sigma band; None where it states none.
        solved: the acceptance was solved from this very point, which is therefore exact and not scored.
    """

    load: float
    predicted: float
    measured: float
    low: float | None = None
    high: float | None = None
    solved: bool = False


class Curve(NamedTuple):
    """Speed-ups that differ in the load only, two loads or more, in order of load; `case` is one of theirs."""

    case: Case
    points: tuple[CurvePoint, ...]


def curves(found: Iterable[Found]) -> Iterator[Curve]:
    """All of them."""
    groups: dict[tuple[str, ...], list[Found]] = defaultdict(list)
    for one in found:
        groups[one.case.curve].append(one)
    for group in groups.values():
        points = sorted((point for one in group if (point := _point(one))), key=lambda point: point.load)
        if len({point.load for point in points}) > 1:
            yield Curve(group[0].case, tuple(points))


def _point(one: Found) -> CurvePoint | None:
    """Where the acceptance was solved, it explains what was measured exactly."""
    score, measured = one.speedup, one.case.row.measured_speedup
    if score is not None:
        return CurvePoint(one.case.load, score.predicted, score.measured, score.low, score.high)
    return None if measured is None else CurvePoint(one.case.load, measured, measured, solved=True)


def trends(found: Iterable[Found]) -> list[Trend]:
    """Of decode steps over the batch."""
    ends = [(case, points[0], points[-1]) for case, points in curves(found) if case.drive == "steps"]
    return [
        Trend(_name(case), last.predicted / first.predicted, last.measured / first.measured)
        for case, first, last in ends
    ]  # fmt: skip


def stops(found: Iterable[Found]) -> list[Stop]:
    """Of every curve over the load that crosses 1, measured or predicted; and of all trees."""
    rows = []
    for case, points in curves(found):
        if case.drive == "steps":
            continue
        loads = [point.load for point in points]
        predicted = _crossing(loads, [point.predicted for point in points])
        measured = _crossing(loads, [point.measured for point in points])
        if predicted or measured or case.tree:
            rows.append(Stop(_name(case), predicted, measured, case.tree, loads[-1]))
    return rows


def _crossing(loads: Sequence[float], speedups: Sequence[float]) -> float | None:
    found = crossings(loads, np.log(speedups).tolist())
    return next((one.value for one in found if one.direction == "stops_paying"), None)


def _name(case: Case) -> str:
    context = f", context {case.row.input_len}" if case.drive == "steps" else ""
    return f"{group_of(case)}, {case.row.method}, {case.row.k_or_tree}, {case.row.dataset}{context}"
