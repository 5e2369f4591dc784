"""Where to look next for break-even points: more operating points around a crossing, or more replicates.

A search is an experiment in rounds. Every round is an ordinary sweep; what comes out is the results folder of a sweep
over the points that were found worth running, which `specsim run` on its resolved scenario writes again. A decision
depends on results alone, so an interrupted search goes on as it would have.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sim.experiment.break_even import Point, Question, slices, speedup_curve
from sim.experiment.compare import Runs, saturates
from sim.experiment.curve import FoundCrossing, Verdict, judge
from sim.experiment.plan import Plan
from sim.scenario.schema import Breakeven, Scenario

#: Replicates are added in steps of about this share of those there are.
GROWTH = 0.6


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a round leaves to be wished: new values of the axis, and how many replicates are enough."""

    points: frozenset[float]
    replicates: int


def refine(plan: Plan, runs: Runs) -> Scenario | None:
    """The next round of a search along the first varied field, or None when every answer is as sharp as asked for.

    Args:
        plan: the round that was run.
        runs: everything known.
    """
    scenario = plan.scenario
    spec = scenario.sweep.breakeven or Breakeven()
    axis, values = next(iter(scenario.sweep.vary.items()))
    whole = all(isinstance(value, int) for value in values)
    wanted = [_wanted(answer, spec, scenario.sweep.replicates, whole) for answer in _answers(plan, runs, spec, axis)]
    room = max(0, spec.max_points - len(values))
    new = sorted(set().union(*(one.points for one in wanted)) - set(map(float, values)))[:room]
    replicates = max((one.replicates for one in wanted), default=0)
    if not new:
        replicates = min(spec.max_replicates, replicates)
        return _with(scenario, axis, values, replicates) if replicates > scenario.sweep.replicates else None
    points = sorted([*values, *(int(value) if whole else value for value in new)])
    return _with(scenario, axis, points, scenario.sweep.replicates)


def _with(scenario: Scenario, axis: str, values: Sequence[object], replicates: int) -> Scenario:
    vary = {**scenario.sweep.vary, axis: tuple(values)}
    sweep = scenario.sweep.model_copy(update={"vary": vary, "replicates": replicates})
    return scenario.model_copy(update={"sweep": sweep})


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one arm and objective.

    Attributes:
        x: values of the axis that can be judged.
        verdict: on them.
        limit: the next tested value, where an arm saturates; None when there is none.
    """

    x: tuple[float, ...]
    verdict: Verdict
    limit: float | None


def _answers(plan: Plan, runs: Runs, spec: Breakeven, axis: str) -> Iterator[_Known]:
    """What is known so far of every arm and objective."""
    scenario = plan.scenario
    question = Question(axis, spec.objectives, spec.confidence, scenario.baseline, spec.min_gain)
    cells = [(cell.cell_id, cell.vary) for cell in plan.cells]
    for _, points in slices(cells, axis):
        for arm, objective in itertools.product(scenario.arms, spec.objectives):
            if arm != scenario.baseline:
                used, curve = speedup_curve(runs, points, arm, objective, question)
                if curve is not None:
                    limit = _limit(runs, points, used, (arm, scenario.baseline))
                    yield _Known(tuple(point.x for point in used), judge(curve, spec.confidence), limit)


def _limit(runs: Runs, points: Sequence[Point], used: Sequence[Point], arms: Sequence[str]) -> float | None:
    beyond = next((point for point in points if point.x > used[-1].x), None)
    full = beyond is not None and any(saturates(runs, beyond.cell_id, arm) for arm in arms)
    return beyond.x if beyond is not None and full else None


def _wanted(known: _Known, spec: Breakeven, replicates: int, whole: bool) -> Wanted:
    verdict = known.verdict
    new: set[float] = set()
    enough = replicates
    for crossing in verdict.crossings:
        found = _point_within(crossing, known.x, spec.tolerance, whole)
        if found is not None:
            new.add(found)
        elif _half_width(crossing) > spec.half_width:
            enough = max(enough, more_replicates(replicates, _half_width(crossing) / spec.half_width))
    if known.limit is not None and _pays_last(verdict):
        new |= _halfway(known.x[-1], known.limit, spec.tolerance, whole)
    if verdict.status == "indeterminate":
        enough = max(enough, more_replicates(replicates, math.inf))
    return Wanted(frozenset(new), enough)


def _pays_last(verdict: Verdict) -> bool:
    """Whether an arm may still pay at the last value that can be judged: then what comes before saturation matters."""
    if verdict.crossings:
        return verdict.crossings[-1].direction == "loss_to_gain"
    return verdict.status != "never"


def _halfway(low: float, high: float, tolerance: float, whole: bool) -> set[float]:
    """The value between two others, on a log scale; none when they are close."""
    if high / low <= 1.0 + tolerance or (whole and high - low <= 1):
        return set()
    middle = math.sqrt(low * high)
    return {float(min(max(round(middle), low + 1), high - 1)) if whole else float(f"{middle:.4g}")}


def _half_width(crossing: FoundCrossing) -> float:
    return (crossing.ci_high - crossing.ci_low) / (2.0 * crossing.value)


def more_replicates(replicates: int, ratio: float) -> int:
    """Replicates for an interval narrower by `ratio`, but no more than one step ahead: variances are only estimates."""
    return min(math.ceil(replicates * ratio**2) if ratio < 10 else 1_000_000, math.ceil(replicates * (1 + GROWTH)))


def _point_within(crossing: FoundCrossing, x: Iterable[float], tolerance: float, whole: bool) -> float | None:
    """A new value in the widest gap of the bracket that the crossing's interval touches; None when all are narrow.

    Gaps narrower than the interval are left alone: there noise decides, more values near the crossing would only pick
    wrong signs from it (coverage falls by 1 to 3 points, statistics.md), and more replicates are what helps. The
    estimate itself is the first choice: linear interpolation is nearly right after one step.
    """
    low, high = crossing.bracket
    inside = [value for value in x if low <= value <= high]
    gaps = [
        (math.log(b / a), a, b)
        for a, b in itertools.pairwise(inside)
        if b / a > max(1.0 + tolerance, crossing.ci_high / crossing.ci_low)
        and (not whole or b - a > 1)
        and a <= crossing.ci_high
        and b >= crossing.ci_low
    ]
    if not gaps:
        return None
    _, a, b = max(gaps)
    place = _near(crossing, a, b, tolerance)
    if whole:
        return float(min(max(round(place), a + 1), b - 1))
    return float(f"{place:.4g}")


def _near(crossing: FoundCrossing, a: float, b: float, tolerance: float) -> float:
    """Where to look between `a` and `b`: at the estimate, or beyond its interval if it is too near one of them."""
    middle, apart = math.sqrt(a * b), 1.0 + tolerance
    if crossing.value <= a * math.sqrt(apart):
        return min(middle, max(a * apart, crossing.ci_high))
    if crossing.value >= b / math.sqrt(apart):
        return max(middle, min(b / apart, crossing.ci_low))
    return crossing.value
