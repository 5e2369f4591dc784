"""Break-even points of a sweep: `breakeven.json`.

Along the first varied field, for every arm and objective: the speed-up over the baseline, paired by replicate, and
every place where it crosses 1. The model band of a crossing is where it lies when the GPU times of the speculative
steps are off by the cost model's relative error while those of the plain steps are right (the pessimistic reading: a
common error would cancel). The closed form gives the factor by which that moves the speed-up at the running batch;
the factor is applied to the simulated curve. At equal arrival rate this understates it, because a slower step also
means a larger batch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.experiment.analytic import AnalyticCurve
from sim.experiment.compare import Runs, depends_on_length, is_lower_better, is_offered_load, pairs, saturates
from sim.experiment.curve import Curve, FoundCrossing, judge, shifted_crossing
from sim.metrics.summary import Row

Json = dict[str, object]

#: Share of a closed loop's users that may wait before the engine counts as full.
WAITING_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """One cell on the axis: the value there, and the cell."""

    x: float
    cell_id: str


@dataclass(frozen=True, slots=True)
class Question:
    """What break-even points are asked for.

    Attributes:
        axis: dotted key of the varied field.
        objectives: metrics.
        confidence: level of all intervals.
        baseline: the arm to beat.
        min_gain: speed-up that counts as paying.
    """

    axis: str
    objectives: Sequence[str]
    confidence: float
    baseline: str
    min_gain: float = 1.0


def numeric_axis(cells: Sequence[tuple[str, Mapping[str, object]]], axis: str) -> bool:
    """Whether the varied values are distinct positive numbers, so that places between them mean something."""
    values = {cell[1].get(axis) for cell in cells}
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0]
    return len(numbers) == len(values) >= 2


def slices(cells: Sequence[tuple[str, Mapping[str, object]]], axis: str) -> list[tuple[dict[str, object], list[Point]]]:
    """Cells grouped by what is varied besides the axis; points in ascending order."""
    groups: dict[tuple[tuple[str, str], ...], tuple[dict[str, object], list[Point]]] = {}
    for cell_id, vary in cells:
        others = {key: value for key, value in vary.items() if key != axis}
        key = tuple((name, repr(value)) for name, value in others.items())
        groups.setdefault(key, (others, []))[1].append(Point(float(str(vary[axis])), cell_id))
    return [(others, sorted(points, key=lambda point: point.x)) for others, points in groups.values()]


def arms_document(
    runs: Runs, points: Sequence[Point], arms: Iterable[str], question: Question, curves: Mapping[str, AnalyticCurve]
) -> Json:
    """Break-even points of one slice: arm -> objective -> answer."""
    return {
        arm: {
            objective: _answer(runs, points, arm, objective, question, curves.get(arm))
            for objective in question.objectives
        }
        for arm in arms
        if arm != question.baseline
    }


def _answer(
    runs: Runs, points: Sequence[Point], arm: str, objective: str, question: Question, model: AnalyticCurve | None
) -> Json:
    used, curve = speedup_curve(runs, points, arm, objective, question)
    full_from = _capacity_from(runs, points, arm, question.axis)
    left_out = [point.x for point in points if point not in used]
    limits = _limits(runs, points, (arm, question.baseline), objective)
    if curve is None:
        reason = "fewer than two values of the axis where both arms have a result"
        if any(is_offered_load(runs, point.cell_id, (arm, question.baseline), objective) for point in points):
            reason = "at an equal arrival rate both arms serve the offered load; compare latencies"
        nothing = {"status": "indeterminate", "reason": reason, "crossings": [], "left_out": left_out}
        return nothing | _nothing(points) | limits
    verdict = judge(curve, question.confidence)
    shifts = _shifts(runs, used, arm, model)
    best = int(np.argmax(curve.mean))
    first = verdict.crossings[0].value if verdict.crossings else math.inf
    return {
        "status": verdict.status,
        "range_tested": [used[0].x, used[-1].x],
        "crossings": [_crossing(c, curve, shifts, used, runs, (arm, question.baseline)) for c in verdict.crossings],
        "max_gain": math.exp(curve.mean[best]) * question.min_gain,
        "at": used[best].x,
        "capacity_reached_first": full_from is not None and full_from < first,
        "capacity_reached_from": full_from,
        "unresolved_at": list(verdict.unresolved),
        "left_out": left_out,
        "num_pairs": len(curve.logs),
        **limits,
    }


def _limits(runs: Runs, points: Sequence[Point], arms: tuple[str, str], objective: str) -> Json:
    """Where the arm and the baseline stop keeping up with the arrivals, and what a 99th percentile rests on."""
    found: Json = {
        f"{prefix}saturates_at": next((point.x for point in points if saturates(runs, point.cell_id, name)), None)
        for prefix, name in zip(("", "baseline_"), arms, strict=True)
    }
    if objective.startswith("p99_"):
        counts = [
            row.get("num_measured") for point in points for name in arms for row in _rows(runs, point.cell_id, name)
        ]
        found["fewest_requests"] = min((int(str(count)) for count in counts if count is not None), default=None)
    return found


def _nothing(points: Sequence[Point]) -> Json:
    ends = [points[0].x, points[-1].x] if points else []
    return {"range_tested": ends, "max_gain": None, "at": None, "capacity_reached_first": False}


def speedup_curve(
    runs: Runs, points: Sequence[Point], arm: str, objective: str, question: Question
) -> tuple[list[Point], Curve | None]:
    """The points with a valid speed-up over `min_gain`, and the curve over the replicates that all of them have.

    In an open loop two kinds of points are left out: throughputs of an engine that keeps up (they repeat the offered
    load), and latencies and goodput of a saturated one (they tell the length of the run).
    """
    found, baseline = {}, question.baseline
    for point in points:
        values = pairs(runs, point.cell_id, arm, baseline, objective)
        says_nothing = is_offered_load(runs, point.cell_id, (arm, baseline), objective) or (
            depends_on_length(objective) and any(saturates(runs, point.cell_id, a) for a in (arm, baseline))
        )
        if values and not says_nothing and all(0 < v < math.inf for pair in values.values() for v in pair):
            found[point] = values
    common = sorted(set.intersection(*(set(values) for values in found.values()))) if found else []
    if len(found) < 2 or not common:
        return list(found), None
    ratios = np.array([[found[point][rep][0] / found[point][rep][1] for point in found] for rep in common])
    logs = np.log(ratios) * (-1.0 if is_lower_better(objective) else 1.0) - math.log(question.min_gain)
    return list(found), Curve(np.array([point.x for point in found]), logs)


def _shifts(
    runs: Runs, points: Sequence[Point], arm: str, model: AnalyticCurve | None
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """(down, up) log factors of the model band at every point; empty without a closed form."""
    if model is None:
        return ()
    bands = [model.band_at(_mean(runs, point.cell_id, arm, "mean_running")) for point in points]
    return tuple(np.array(side) for side in zip(*bands, strict=True))


def _mean(runs: Runs, cell_id: str, arm: str, column: str) -> float:
    values = [float(str(row[column])) for row in _rows(runs, cell_id, arm)]
    return math.fsum(values) / len(values)


def _rows(runs: Runs, cell_id: str, arm: str) -> list[Row]:
    return list(runs.get((cell_id, arm), {}).values())


def _crossing(
    found: FoundCrossing,
    curve: Curve,
    shifts: Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]],
    points: Sequence[Point],
    runs: Runs,
    arms: tuple[str, str],
) -> Json:
    """A crossing of (arm, baseline) as JSON; a null band end lies outside the tested range."""
    band = [shifted_crossing(curve, shift, found) for shift in shifts] or [None, None]
    if found.direction == "loss_to_gain":
        band.reverse()
    x = np.log([point.x for point in points])
    ours, theirs = (
        float(
            np.interp(math.log(found.value), x, [_mean(runs, point.cell_id, arm, "mean_running") for point in points])
        )
        for arm in arms
    )
    return {
        "value": found.value,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "model_band_low": band[0],
        "model_band_high": band[1],
        "direction": found.direction,
        "bracket": list(found.bracket),
        "n_pairs": found.num_pairs,
        "mean_running": ours,
        "baseline_mean_running": theirs,
    }


def _capacity_from(runs: Runs, points: Sequence[Point], arm: str, axis: str) -> float | None:
    """Smallest concurrency from which the KV pool keeps users waiting or preempts; None on other axes."""
    if not axis.endswith("max_concurrency"):
        return None
    return next(
        (point.x for point in points if any(_is_full(row, point.x) for row in _rows(runs, point.cell_id, arm))), None
    )


def _is_full(row: Row, concurrency: float) -> bool:
    waiting, usage = float(str(row["mean_waiting"])), float(str(row["kv_usage_p99"]))
    return bool(row["preemptions"]) or (waiting > WAITING_SHARE * concurrency and usage > 0.9)
