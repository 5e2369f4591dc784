"""Where the acceptance of a case comes from: its own statement, another row's, or the speed-up of one row.

In this order: recorded sequences; the mean that the row states; the mean that the same drafter and K have at another
load; the mean at the nearest K that the source states one for, carried over; the mean that explains the speed-up at
the smallest load; the one that explains it at the smallest K. A row that is solved from is not scored.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sim.errors import SimError
from sim.validation.as_published import UnrunnableError
from sim.validation.carried import carried
from sim.validation.case import Case
from sim.validation.runner import Runner

#: Mean tokens per step with our prices and with naive ones; None for recorded sequences.
Tokens = tuple[float | None, float | None]


class Levelled(NamedTuple):
    """A case and its acceptance.

    Attributes:
        how: where it comes from, for remarks.
        solved: it was solved from this very case, which is therefore not scored.
    """

    case: Case
    tokens: Tokens
    how: str
    solved: bool = False


class Unlevelled(NamedTuple):
    """A case whose acceptance nothing says."""

    case: Case
    reason: str


def levelled(runner: Runner, sweep: Sequence[Case]) -> Iterator[Levelled | Unlevelled]:
    """Acceptance of the cases of a sweep: rows that differ in load and K only."""
    curves: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in sorted(sweep, key=lambda case: (case.num_drafts, case.load)):
        curves[case.line].append(case)
    stated = {case.num_drafts: case.row.tokens_per_step for case in sweep if case.row.tokens_per_step and not case.tree}
    anchor: tuple[int, Tokens] | None = None
    for curve in curves.values():
        known = list(_stated(curve)) or list(_carried_from(curve, stated)) or list(_carried_from_solved(curve, anchor))
        yield from known
        for one in () if known else _solved(runner, curve, several=len(sweep) > 1):
            yield one
            if anchor is None and isinstance(one, Levelled) and one.solved and not one.case.tree:
                anchor = one.case.num_drafts, one.tokens


def _stated(curve: Sequence[Case]) -> Iterator[Levelled]:
    """Recorded or stated, here or at another load; nothing where no row of the curve has either."""
    means = [case.row.tokens_per_step for case in curve if case.row.tokens_per_step]
    for case in curve:
        if case.recorded:
            yield Levelled(case, (None, None), f"sequences {case.recorded.path.name}")
        elif own := case.row.tokens_per_step:
            yield Levelled(case, (own, own), f"stated {own:g}")
        elif means:
            mean = float(np.mean(means))
            yield Levelled(case, (mean, mean), f"{mean:.3g}, stated at other loads")


def _carried_from(curve: Sequence[Case], stated: dict[int, float]) -> Iterator[Levelled]:
    """The mean at the nearest K that has one."""
    case = curve[0]
    if case.tree or not stated:
        return
    k = min(stated, key=lambda k: (abs(k - case.num_drafts), k))
    try:
        tokens = _carry(case, stated[k], k)
    except UnrunnableError:
        return
    for case in curve:
        yield Levelled(case, (tokens, tokens), f"{tokens:.2f}, carried over from {stated[k]:g} at K = {k}")


def _carried_from_solved(curve: Sequence[Case], anchor: tuple[int, Tokens] | None) -> Iterator[Levelled]:
    """A single load, at another K of a sweep whose smallest K was solved."""
    if anchor is None or len(curve) > 1 or curve[0].tree:
        return
    k, tokens = anchor
    try:
        mine = tuple(_carry(curve[0], one, k) for one in tokens if one is not None)
    except UnrunnableError:
        return
    yield Levelled(curve[0], (mine[0], mine[1]), f"{mine[0]:.2f}, carried over from {tokens[0]:.2f} solved at K = {k}")


def _carry(case: Case, tokens: float, from_k: int) -> float:
    return carried(tokens, from_k, case.num_drafts, str(case.config["method"]), case.row.dataset)


def _solved(runner: Runner, curve: Sequence[Case], *, several: bool) -> Iterator[Levelled | Unlevelled]:
    """The mean that explains the smallest load."""
    first = curve[0]
    if not several:
        yield Unlevelled(first, "acceptance not stated, and no other load or K to infer it from")
        return
    try:
        speedup = first.row.measured_speedup or 1.0
        tokens = tuple(runner.solved(first, speedup, naive=naive) for naive in (False, True))
    except SimError as error:
        yield from (Unlevelled(case, str(error).splitlines()[0]) for case in curve)
        return
    yield Levelled(first, (tokens[0], tokens[1]), "solved here", solved=True)
    for case in curve[1:]:
        yield Levelled(case, (tokens[0], tokens[1]), f"{tokens[0]:.2f}, solved at {first.row.load}")
