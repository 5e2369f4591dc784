"""Pictures of the page `physics`: how errors are spread, by operator and GPU, and for a GPU that was never measured."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.report.validation.canvas import GOOD, OTHER, PREDICTED, Floats, Picture, Sheet, name_panel
from sim.report.validation.panels import NARROW, RIGHT, finish_ratios
from sim.validation.physics import Comparison, Report
from sim.validation.steps import StepErrors
from sim.validation.transfer import Transfer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def physics_pictures(report: Report, steps: Sequence[StepErrors], transferred: Sequence[Transfer]) -> Iterator[Picture]:
    """All of the page: `physics-kernels`, `physics-steps`, `physics-transfer`."""
    usable = [own for own in report.comparisons if own.usable_kernel]
    if usable:
        alt = (
            "Predicted over measured kernel times, their spread by operator and GPU, with datasheet peaks beside them."
        )
        yield Picture("physics-kernels", alt, _kernels(usable))
    if steps:
        alt = "Mean error of whole steps inside an engine: shipped profile, fit without the shape, datasheet peaks."
        rows = [(f"{s.kind}, {s.model} on {s.gpu}", s.left_out or s.shipped, s.naive) for s in steps]
        dots = [(name, {"ours": ours.mape, "naive": naive.mape}) for name, ours, naive in rows]
        yield Picture("physics-steps", alt, _dots("Mean error of whole steps, %.", dots))
    if transferred:
        alt = (
            "Mean error for a GPU whose whole generation was left out of the fit, and with a profile of its generation."
        )
        names = {"generation left out": "left_out", "profile of the same generation": "kin"}
        rows_of = [
            (f"{own.what}, {own.gpu}", {k: s.mape for k, v in names.items() if (s := getattr(own, v)) is not None})
            for own in transferred
        ]
        dots = [(name, values) for name, values in rows_of if values]
        yield Picture("physics-transfer", alt, _dots("Mean error for a GPU that was never measured, %.", dots))


def _kernels(usable: Sequence[Comparison]) -> str:
    """A panel per operator, a row per GPU."""
    title = (
        "Predicted / measured. Blue: shapes left out of the fit; the line holds 90 % of them, the bar half, the dot is "
        "the median. Orange: datasheet peaks."
    )
    operators = list(dict.fromkeys(own.operator for own in usable))
    sheet = Sheet(len(operators), 2, 1.35, title=title)
    for axes, operator in zip(sheet.panels, operators, strict=True):
        mine = [own for own in usable if own.operator == operator]
        gpus = list(dict.fromkeys(own.gpu for own in mine))
        for row, gpu in enumerate(gpus):
            here = [own for own in mine if own.gpu == gpu]
            _spread(axes, row - 0.13, _ratios(here, naive=False), PREDICTED)
            _spread(axes, row + 0.22, _ratios(here, naive=True), OTHER, slim=True)
        axes.set_yticks(range(len(gpus)), gpus)
        axes.set_ylim(max(len(gpus), 4) - 0.4, -0.6)
        finish_ratios(axes, NARROW)
        name_panel(axes, f"{operator}: {sum(len(own.rows.table) for own in mine):,} kernels")
    return sheet.svg()


def _ratios(here: Sequence[Comparison], *, naive: bool) -> Floats:
    """Of all formats and kernels of a GPU."""
    chosen = [(own, own.naive_us if naive else _best(own)) for own in here]
    found = [predicted / own.rows.times_us for own, predicted in chosen if predicted is not None]
    return np.concatenate([np.empty(0), *found])


def _best(own: Comparison) -> Floats | None:
    return own.shipped_us if own.left_out_us is None else own.left_out_us


def _spread(axes: "Axes", row: float, ratios: Floats, color: str, *, slim: bool = False) -> None:
    if not ratios.size:
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
            face = colors[kind] if colors[kind] == PREDICTED else "none"
            axes.plot(value, row, "o", color=colors[kind], markersize=5, markerfacecolor=face)
    for kind, color in colors.items():
        row, value = next((row, values[kind]) for row, (_, values) in enumerate(rows) if kind in values)
        axes.annotate(
            kind, (value, row), xytext=(0, 7), textcoords="offset points", color=color, fontsize=7.5, ha="center"
        )
    axes.axvspan(0, 100 * RIGHT, color=GOOD, zorder=0)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7.3)
    axes.set_ylim(len(rows) - 0.4, -1.1)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    return sheet.svg()
