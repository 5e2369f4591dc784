"""Pictures of the page `physics`: how errors are spread, by operator and GPU, and for a GPU that was never measured."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.report.palette import INK, MUTED
from sim.report.validation.canvas import GOOD, MEASURED, OTHER, PREDICTED, Picture, Sheet
from sim.report.validation.panels import RIGHT, Floats, finish_ratios
from sim.validation.physics import Comparison, Report
from sim.validation.steps import StepErrors
from sim.validation.transfer import Transfer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def physics_pictures(
    report: Report, steps: Sequence[StepErrors], transferred: Sequence[Transfer]
) -> Iterator[Picture]:
    """All of the page: `physics-kernels`, `physics-steps`, `physics-transfer`."""
    usable = [own for own in report.comparisons if own.usable_kernel]
    if usable:
        alt = "Predicted over measured kernel times, their spread by operator and GPU, with datasheet peaks beside them."
        yield Picture("physics-kernels", alt, _kernels(usable))
    if steps:
        alt = "Mean error of whole steps inside an engine: shipped profile, fit without the shape, datasheet peaks."
        rows = [(f"{s.kind}, {s.model} on {s.gpu}", s.left_out or s.shipped, s.naive) for s in steps]
        dots = [(name, {"ours": ours.mape, "naive": naive.mape}) for name, ours, naive in rows]
        yield Picture("physics-steps", alt, _dots("Mean error of whole steps, %.", dots))
    if transferred:
        alt = "Mean error for a GPU whose whole generation was left out of the fit, and with a profile of its generation."
        names = {"ours": "left_out", "same generation": "kin"}
        dots = [
            (f"{own.what}, {own.gpu}", {k: s.mape for k, v in names.items() if (s := getattr(own, v)) is not None})
            for own in transferred
        ]
        yield Picture("physics-transfer", alt, _dots("Mean error for a GPU that was never measured, %.", dots))


def _kernels(usable: Sequence[Comparison]) -> str:
    title = ("Predicted / measured. Blue: shapes left out of the fit; a line over 90 % of them, thick over half, a dot at "
             "the median. Orange: datasheet peaks.")  # fmt: skip
    sheet = Sheet(1, 1, 0.6 + 0.2 * len(usable), title=title)
    axes, place, ticks = sheet.panels[0], 0.0, list[tuple[float, str]]()
    for operator in dict.fromkeys(own.operator for own in usable):
        axes.annotate(operator, (1.0, place), xycoords=("axes fraction", "data"), xytext=(-4, 0), va="center", ha="right",
                      textcoords="offset points", color=INK, fontsize=8, fontweight="bold")  # fmt: skip
        for own in (own for own in usable if own.operator == operator):
            _spread(axes, place - 0.13, _ratios(own, own.left_out_us if own.left_out_us is not None else own.shipped_us), PREDICTED)
            _spread(axes, place + 0.22, _ratios(own, own.naive_us), OTHER, slim=True)
            ticks.append((place, f"{own.gpu}, {own.kind}".rstrip(", ")))
            place += 1.0
        place += 0.5
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=7)
    axes.set_ylim(place - 0.7, -0.8)
    finish_ratios(axes)
    return sheet.svg()


def _ratios(own: Comparison, predicted: Floats | None) -> Floats | None:
    return None if predicted is None else np.asarray(predicted / own.rows.times_us, np.float64)


def _spread(axes: "Axes", row: float, ratios: Floats | None, color: str, *, slim: bool = False) -> None:
    if ratios is None:
        return
    low, first, middle, third, high = np.clip(np.quantile(ratios, _QUANTILES), 1 / 2.95, 2.95)
    axes.plot([low, high], [row, row], color=color, linewidth=0.9, alpha=0.9)
    axes.plot([first, third], [row, row], color=color, linewidth=2.0 if slim else 4.0, solid_capstyle="butt")
    axes.plot(middle, row, "o", color="white" if not slim else color, markersize=2.4, zorder=3)


def _dots(title: str, rows: Sequence[tuple[str, dict[str, float]]]) -> str:
    """A row of dots per line, named at their first appearance."""
    sheet = Sheet(1, 1, 0.7 + 0.2 * len(rows), title=title)
    axes = sheet.panels[0]
    colors = dict(zip(dict.fromkeys(kind for _, values in rows for kind in values), (PREDICTED, OTHER), strict=False))
    for row, (_, values) in enumerate(rows):
        for kind, value in values.items():
            axes.plot(value, row, "o", color=colors[kind], markersize=5, markerfacecolor=colors[kind] if kind == "ours" else "none")
    for kind, color in colors.items():
        row, value = next((row, values[kind]) for row, (_, values) in enumerate(rows) if kind in values)
        axes.annotate(kind, (value, row), xytext=(0, 7), textcoords="offset points", color=color, fontsize=7.5, ha="center")
    axes.axvspan(0, 100 * RIGHT, color=GOOD, zorder=0)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7.3)
    axes.set_ylim(len(rows) - 0.4, -1.1)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    return sheet.svg()
