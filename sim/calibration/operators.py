"""What it takes to fit an op group: its table, its parameters with bounds, and its price by the code in `sim.cost`.

An operator turns trial parameters into the same `Fit` objects that profiles hold, binds them with `sim.cost` and prices
all rows of a table at once: there is no second set of equations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import Floats, FitResult, fit
from sim.calibration.tables import Table
from sim.errors import CalibrationError
from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, Fit

Mask = NDArray[np.bool_]


class Parameter(NamedTuple):
    """One fitted number: a field of the fit, its start and its box."""

    name: str
    start: float
    low: float
    high: float


class Rows(NamedTuple):
    """Rows of one fit: the same GPU, format and kernel."""

    gpu: Gpu
    table: Table

    @property
    def times_us(self) -> Floats:
        """Measured times."""
        return self.table.numbers("time_us")

    def where(self, mask: Mask) -> "Rows":
        """Some of the rows."""
        return Rows(self.gpu, self.table.where(mask))


@dataclass(frozen=True)
class Operator:
    """One op group of the cost model.

    Attributes:
        name: of the op group.
        file, columns: its table and the columns it needs.
        kinds: columns whose values tell fits apart, besides the GPU.
        shape: columns that say which shape a row has; folds leave whole shapes out.
        fit_type: the profile section it fills.
        constants: fields of the section that are not fitted.
        parameters: what is fitted, for a format and GPU.
        price_us: time of all rows with a section's parameters.
        usable: rows that say something about a server (not read from a cache, for instance).
        shipped: the section of a profile that these rows are about; None where it has none of its own.
    """

    name: str
    file: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    shape: tuple[str, ...]
    fit_type: type[Fit]
    constants: Callable[[Rows], dict[str, Any]]
    parameters: Callable[[Rows], tuple[Parameter, ...]]
    price_us: Callable[[Rows, Any], Floats]
    usable: Callable[[Rows], Mask]
    shipped: Callable[[ChosenProfile, Rows], Fit | None]

    def section(self, rows: Rows, values: Floats | tuple[float, ...]) -> Fit:
        """A section with trial or fitted values of the parameters."""
        names = [parameter.name for parameter in self.parameters(rows)]
        fields = dict(zip(names, map(float, values), strict=True))
        return self.fit_type(source="calibration", **self.constants(rows), **fields)

    def fit(self, rows: Rows, start: tuple[float, ...] | None = None) -> FitResult:
        """Fit the parameters to the rows, all of which count.

        Raises:
            CalibrationError: too few rows, or impossible times.
        """
        parameters = self.parameters(rows)
        return fit(
            lambda values: self.price_us(rows, self.section(rows, values)),
            rows.times_us,
            start or tuple(p.start for p in parameters),
            [(p.low, p.high) for p in parameters],
            num_starts=1 if start else 2,
        )


def left_out_us(operator: Operator, rows: Rows, whole: FitResult, num_folds: int = 6) -> Floats | None:
    """Price every row with parameters fitted without its shape; None when there is only one shape, or too few rows."""
    keys = rows.table.keys(operator.shape)
    order = {key: i % num_folds for i, key in enumerate(sorted(set(keys), key=_numeric))}
    if len(order) < 2:
        return None
    folds = np.array([order[key] for key in keys])
    predicted = np.zeros(len(keys))
    for fold in sorted(set(order.values())):
        inside, outside = rows.where(folds != fold), rows.where(folds == fold)
        try:
            found = operator.fit(inside, whole.parameters)
        except CalibrationError:
            return None
        predicted[folds == fold] = operator.price_us(outside, operator.section(outside, found.parameters))
    return predicted


def _numeric(key: tuple[str, ...]) -> tuple[tuple[float, str], ...]:
    return tuple((float(part), "") if part.replace(".", "", 1).isdigit() else (0.0, part) for part in key)
