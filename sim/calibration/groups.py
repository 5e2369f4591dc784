"""An op group to fit: measured points, parameters with bounds, and what is left out to judge the fit.

Every prediction goes through the cost model's own code, so that what is fitted is what is simulated.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import ErrorStats, Floats, error_stats, fit
from sim.calibration.problems import Problems
from sim.hardware.profile import Fit

#: A section of a profile -> times in microseconds of the points at these indices.
Predict = Callable[[Fit, NDArray[np.intp]], Floats]

#: Points beyond the number of free parameters that a fit needs.
SPARE_POINTS = 3
#: How the provenance of every fitted section begins.
MARK = "specsim calibrate: "
#: Below so many shapes, single points are left out instead of whole shapes.
_FEWEST_SHAPES = 5
#: Kernels of one table scatter by this much at least (docs/background/cost-model.md); for standard errors only.
_NOISE = 0.02
#: Times scatter; this much below the ideal is no scatter.
_SCATTER = 0.95


class Parameter(NamedTuple):
    """A free parameter.

    Attributes:
        name: field of the section.
        low, high: bounds.
        tolerance: a standard error above this means that the points do not identify it.
    """

    name: str
    low: float
    high: float
    tolerance: float


class Group(NamedTuple):
    """Points of one op group of one profile section.

    Attributes:
        key: where the section lies in a profile, such as `linear.bf16`.
        places: file and row of each point.
        measured: microseconds.
        shapes: points of one shape are left out together.
        predict: times from a section.
        base: the section to start from; parameters that are not identified keep its values.
        parameters: what is free, the most important first.
        notes: what was chosen among the rows.
        reference: the base profile's own section, where `base` had to be completed.
    """

    key: str
    places: tuple[tuple[str, int], ...]
    measured: Floats
    shapes: tuple[str, ...]
    predict: Predict
    base: Fit
    parameters: tuple[Parameter, ...]
    notes: tuple[str, ...] = ()
    reference: Fit | None = None

    @property
    def files(self) -> str:
        """Names of the files that the points come from."""
        return ", ".join(dict.fromkeys(file for file, _ in self.places))


class Fitted(NamedTuple):
    """A fitted group.

    Attributes:
        group: what was fitted.
        section: the fitted section, with its provenance.
        in_sample: error on the points fitted.
        held_out: error on the points left out; None when none was.
        base_error: of the base profile, on the points left out (on all where none was).
        not_identified: parameters that keep the base profile's value.
    """

    group: Group
    section: Fit
    in_sample: ErrorStats
    held_out: ErrorStats | None
    base_error: ErrorStats
    not_identified: tuple[str, ...]


def read_from_cache(shapes: Sequence[str], measured: Floats, streaming: Floats) -> NDArray[np.bool_]:
    """Points of shapes of which some point beats the datasheet's bandwidth: a benchmark read them from the L2 cache."""
    warm = {shape for shape, time, least in zip(shapes, measured, streaming, strict=True) if time < _SCATTER * least}
    return np.array([shape in warm for shape in shapes], dtype=bool)


def held_out(shapes: Sequence[str], share: float) -> NDArray[np.bool_]:
    """Which points to leave out: whole shapes where there are enough, chosen by checksum, the same ones every time."""
    names = sorted(set(shapes))
    by_shape = len(names) >= _FEWEST_SHAPES
    keys = list(shapes) if by_shape else [f"{i} {shape}" for i, shape in enumerate(shapes)]
    pool = names if by_shape else keys
    drawn = sorted(pool, key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    out = set(drawn[: round(share * len(pool))])
    return np.array([key in out for key in keys], dtype=bool)


def fit_group(group: Group, share: float, problems: Problems) -> Fitted | None:
    """Fit one group; None, and a problem noted, where there are too few points."""
    left_out = held_out(group.shapes, share)
    rows, others = np.flatnonzero(~left_out), np.flatnonzero(left_out)
    needed = len(group.parameters) + SPARE_POINTS
    if rows.size < needed:
        reason = f"too few points to fit {group.key}: {rows.size}, needed {needed}"
        beside = f" beside the {others.size} held out" if others.size else ""
        problems.add(group.files, "", reason + beside)
        return None
    section, fixed = _identified(group, rows)
    inside = _errors(group, section, rows)
    outside = _errors(group, section, others) if others.size else None
    told = _provenance(group, inside, outside)
    section = section.model_copy(update={"source": told, "mape_percent": round((outside or inside).mape, 1)})
    base = _errors(group, group.reference or group.base, others if others.size else rows)
    return Fitted(group, section, inside, outside, base, fixed)


def _errors(group: Group, section: Fit, rows: NDArray[np.intp]) -> ErrorStats:
    return error_stats(group.predict(section, rows), group.measured[rows])


def _identified(group: Group, rows: NDArray[np.intp]) -> tuple[Fit, tuple[str, ...]]:
    """Fit; give the last parameter that is too uncertain its base value and fit again, until none is."""
    free = list(group.parameters)
    fixed: list[str] = []
    while free:
        values = _fit(group, free, rows)
        doubtful = np.flatnonzero(_doubt(group, free, values, rows) > 1.0)
        if not doubtful.size:
            return _section(group.base, free, values), tuple(fixed)
        fixed.append(free.pop(int(doubtful[-1])).name)
    return group.base, tuple(fixed)


def _fit(group: Group, free: Sequence[Parameter], rows: NDArray[np.intp]) -> Floats:
    start = [float(getattr(group.base, p.name) or 0.0) for p in free]
    found = fit(
        lambda values: group.predict(_section(group.base, free, values), rows),
        group.measured[rows],
        start,
        [(p.low, p.high) for p in free],
        num_starts=2,
    )
    return np.array(found.parameters)


def _section(base: Fit, free: Sequence[Parameter], values: Floats) -> Fit:
    return base.model_copy(update={p.name: float(v) for p, v in zip(free, values, strict=True)})


def _doubt(group: Group, free: Sequence[Parameter], values: Floats, rows: NDArray[np.intp]) -> Floats:
    """Standard error of each parameter over its tolerance, from the curvature at the minimum."""
    measured = group.measured[rows]

    def logs(moved: Floats) -> Floats:
        return np.log(np.maximum(group.predict(_section(group.base, free, moved), rows), 1e-9) / measured)

    here = logs(values)
    columns = []
    for i, p in enumerate(free):
        step = 1e-3 * p.tolerance * (1.0 if values[i] + 1e-3 * p.tolerance <= p.high else -1.0)
        moved = values.copy()
        moved[i] += step
        columns.append((logs(moved) - here) / step * p.tolerance)
    slopes = np.column_stack(columns)
    spread = max(_NOISE, float(np.median(np.abs(here))) * 1.5)
    # a whisper of a prior keeps the matrix regular; it stands for a doubt of 100 tolerances
    precision = slopes.T @ slopes / spread**2 + 1e-4 * np.eye(len(free))
    doubt: Floats = np.sqrt(np.diag(np.linalg.inv(precision)))
    return doubt


def _provenance(group: Group, inside: ErrorStats, outside: ErrorStats | None) -> str:
    told = f"{MARK}{inside.points} points of {group.files}, MAPE {inside.mape:.1f} %"
    if outside is not None:
        told += f"; {outside.points} held out, {outside.mape:.1f} %"
    return "; ".join((told, *group.notes))
