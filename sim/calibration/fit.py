"""Robust least squares on log error inside a box: Levenberg-Marquardt with a numeric Jacobian, in numpy alone.

Errors of kernel times are relative and heavy-tailed, hence the logarithm and the soft-L1 loss 2(sqrt(1 + (r/s)^2) - 1).
Parameters are mapped to [0, 1]: on a log scale where their bounds are positive and far apart, linearly otherwise.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import CalibrationError

Floats = NDArray[np.float64]
Bounds = Sequence[tuple[float, float]]
Model = Callable[[Floats], Floats]

#: Log errors well above this count linearly, not squared.
_SOFT_SCALE = 0.1
_LOG_SPAN = 20.0
_STEP = 1e-5


class ErrorStats(NamedTuple):
    """Relative errors of predictions, in per cent of the measured value.

    Attributes:
        mape, p95, worst: mean, 95th percentile and maximum of the absolute error.
        bias: mean signed error; negative where predictions are too fast.
        points: how many.
    """

    mape: float
    p95: float
    worst: float
    bias: float
    points: int


class FitResult(NamedTuple):
    """Parameters at the best minimum found, and their error on the fitted points in per cent.

    Attributes:
        parameters: in the order of `start`.
        mape, p95, worst: absolute relative error, mean, 95th percentile and maximum.
        at_bound: which parameters ended at an end of their box (not identified by the data, or the box is too tight).
        points: points fitted.
        loss: mean soft-L1 loss, to compare fits of the same points.
    """

    parameters: tuple[float, ...]
    mape: float
    p95: float
    worst: float
    at_bound: tuple[bool, ...]
    points: int
    loss: float


def error_stats(predicted: Floats, measured: Floats) -> ErrorStats:
    """Errors of `predicted` against `measured`.

    Raises:
        CalibrationError: there are no points.
    """
    if not measured.size:
        raise CalibrationError("no points to compare")
    relative = 100.0 * (predicted / measured - 1.0)
    size = np.abs(relative)
    p95 = float(np.quantile(size, 0.95))
    return ErrorStats(float(size.mean()), p95, float(size.max()), float(relative.mean()), int(size.size))


def fit(
    model: Model,
    target: Floats,
    start: Sequence[float],
    bounds: Bounds,
    weights: Floats | None = None,
    num_starts: int = 3,
) -> FitResult:
    """The parameters whose `model` times are nearest to `target`, in soft-L1 of the log error.

    Args:
        model: parameters to predicted times, one per point, all positive.
        target: measured times, positive, in the unit of the model.
        start: a first guess; clipped into the box. Further starts are spread over the box, always the same ones.
        bounds: (low, high) of each parameter; low == high holds it fixed.
        weights: of the points; equal when missing.
        num_starts: starts tried; the best minimum wins.

    Raises:
        CalibrationError: fewer points than free parameters, or times that are not finite and positive.
    """
    box = _Box(bounds)
    _check(target, weights, int(box.free.sum()))
    problem = _Problem(model, np.log(target), box, _normalised(weights, target.size))
    minima = [_minimise(problem, x) for x in box.starts(start, num_starts)]
    best, loss = min(minima, key=lambda found: found[1])
    stats = error_stats(model(box.parameters(best)), target)
    return FitResult(
        parameters=tuple(float(p) for p in box.parameters(best)),
        mape=stats.mape,
        p95=stats.p95,
        worst=stats.worst,
        at_bound=tuple(bool(b) for b in box.free & ((best <= 1e-3) | (best >= 1 - 1e-3))),
        points=stats.points,
        loss=loss,
    )


def _check(target: Floats, weights: Floats | None, free: int) -> None:
    bad = np.flatnonzero(~(np.isfinite(target) & (target > 0)))
    if bad.size:
        raise CalibrationError(f"times must be finite and positive; point {bad[0]} is {target[bad[0]]}")
    if target.size < max(1, free):
        raise CalibrationError(f"{target.size} points cannot fix {free} parameters")
    if weights is not None and (weights.shape != target.shape or not np.all(weights >= 0) or weights.sum() <= 0):
        raise CalibrationError("weights must be one non-negative number per point, not all zero")


def _normalised(weights: Floats | None, points: int) -> Floats:
    return np.full(points, 1.0 / points) if weights is None else weights / weights.sum()


class _Box:
    """Maps parameters to the unit cube and back."""

    def __init__(self, bounds: Bounds) -> None:
        self.low, self.high = np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds])
        if not np.all(self.low <= self.high):
            raise CalibrationError("every lower bound must be at most its upper bound")
        self.free = self.low < self.high
        self.log = (self.low > 0) & (self.high > _LOG_SPAN * np.maximum(self.low, 1e-300)) & self.free
        self._safe_low = np.where(self.log, self.low, 1.0)
        self._ratio = np.where(self.log, self.high, 1.0) / self._safe_low

    def parameters(self, x: Floats) -> Floats:
        linear = self.low + x * (self.high - self.low)
        inside: Floats = np.where(self.log, self._safe_low * self._ratio**x, linear)
        return inside

    def unit(self, parameters: Floats) -> Floats:
        span = np.where(self.free, self.high - self.low, 1.0)
        linear = (parameters - self.low) / span
        inside = np.maximum(parameters, np.where(self.log, self.low, 1.0)) / self._safe_low
        logarithmic = np.log(inside) / np.where(self.log, np.log(self._ratio), 1.0)
        x: Floats = np.clip(np.where(self.log, logarithmic, linear), 0.0, 1.0)
        return np.where(self.free, x, 0.0)

    def starts(self, start: Sequence[float], count: int) -> list[Floats]:
        """The guess, then points of an additive recurrence (Roberts' R_d sequence), kept off the faces."""
        first = self.unit(np.array(start, dtype=float))
        root = 2.0 ** (1.0 / max(1, first.size))
        steps = root ** -np.arange(1.0, first.size + 1.0)
        spread = [0.1 + 0.8 * ((0.5 + i * steps) % 1.0) for i in range(1, count)]
        return [np.clip(first, 0.02, 0.98) * self.free, *(x * self.free for x in spread)]


class _Problem(NamedTuple):
    """Weighted log residuals of a model in the unit cube."""

    model: Model
    log_target: Floats
    box: _Box
    weights: Floats

    def residuals(self, x: Floats) -> Floats:
        with np.errstate(all="ignore"):
            errors: Floats = np.log(self.model(self.box.parameters(x))) - self.log_target
        return np.nan_to_num(errors, nan=50.0, posinf=50.0, neginf=-50.0)

    def loss(self, residuals: Floats) -> float:
        scaled = 1.0 + (residuals / _SOFT_SCALE) ** 2
        return float(np.sum(self.weights * 2.0 * (np.sqrt(scaled) - 1.0)))

    def jacobian(self, x: Floats, residuals: Floats) -> Floats:
        """One-sided differences, away from the nearer face."""
        columns = np.zeros((residuals.size, x.size))
        for i in np.flatnonzero(self.box.free):
            moved, step = x.copy(), _STEP if x[i] < 0.5 else -_STEP
            moved[i] += step
            columns[:, i] = (self.residuals(moved) - residuals) / step
        return columns


def _minimise(problem: _Problem, x: Floats, iterations: int = 60) -> tuple[Floats, float]:
    """Levenberg-Marquardt; parameters pushed against a face are held there for the step."""
    residuals, damping = problem.residuals(x), 1e-2
    loss = problem.loss(residuals)
    for _ in range(iterations):
        jacobian = problem.jacobian(x, residuals)
        robust = problem.weights / np.sqrt(1.0 + (residuals / _SOFT_SCALE) ** 2)
        gradient = jacobian.T @ (robust * residuals)
        held = ((x <= 0.0) & (gradient > 0)) | ((x >= 1.0) & (gradient < 0)) | ~problem.box.free
        hessian = (jacobian * robust[:, None]).T @ jacobian
        x, residuals, gained, damping = _descend(problem, x, (gradient, hessian, ~held), (residuals, loss, damping))
        loss -= gained
        if gained <= 1e-7 * max(loss, 1e-12):
            break
    return x, loss


def _descend(
    problem: _Problem, x: Floats, system: tuple[Floats, Floats, NDArray[np.bool_]], state: tuple[Floats, float, float]
) -> tuple[Floats, Floats, float, float]:
    """One accepted step, or none: the new point, its residuals, the loss gained and the next damping."""
    gradient, hessian, active = system
    residuals, loss, damping = state
    if not active.any():
        return x, residuals, 0.0, damping
    scale = np.diag(np.maximum(np.diag(hessian)[active], 1e-12))
    for _ in range(12):
        step = np.zeros_like(x)
        step[active] = -_solved(hessian[np.ix_(active, active)] + damping * scale, gradient[active])
        moved = np.clip(x + step, 0.0, 1.0)
        new = problem.residuals(moved)
        gained = loss - problem.loss(new)
        if gained > 0:
            return moved, new, gained, damping / 5.0
        damping *= 4.0
    return x, residuals, 0.0, damping


def _solved(matrix: Floats, right: Floats) -> Floats:
    """The solution, or the shortest of the nearest ones: points may leave parameters without any effect."""
    try:
        return np.asarray(np.linalg.solve(matrix, right), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0], np.float64)
