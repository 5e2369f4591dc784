"""Panels that several pages use: predicted over measured, a row per group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.report.palette import INK, MUTED
from sim.report.validation.canvas import GOOD, OTHER, PREDICTED, Floats, Sheet
from sim.validation.scores import Score, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Predictions within this of the measured value count as right, in pictures.
RIGHT = 0.10
#: Ratios are cut off here; their number is written at the edge.
_CUT = 3.0
#: Ticks of a panel over the whole width, and of one over half of it.
WIDE, NARROW = (0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5), (0.5, 0.8, 1.0, 1.3, 2.0)


def ratio_rows(groups: Sequence[tuple[str, Sequence[Score]]]) -> str:
    """Predicted / measured of every score as a tick, the mean of a group as a diamond, beside the naive mean."""
    sheet = Sheet(1, 1, 0.9 + 0.36 * len(groups), title="Predicted / measured: a tick per figure, a dot for the mean "
                  "of a group; the ring is the mean of datasheet peaks (naive). Green: within 10 %.")  # fmt: skip
    axes = sheet.panels[0]
    for row, (_, scores) in enumerate(groups):
        _ratio_row(axes, row, scores)
    axes.set_yticks(range(len(groups)), [name for name, _ in groups], fontsize=7.5)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    finish_ratios(axes)
    return sheet.svg()


def finish_ratios(axes: "Axes", ticks: Sequence[float] = WIDE) -> None:
    """A log axis of ratios from a third to three with the band of what is right."""
    axes.set_xscale("log")
    axes.set_xlim(1 / _CUT, _CUT)
    axes.xaxis.set_ticks(list(ticks), labels=[f"{100 * (tick - 1):+.0f} %" if tick != 1 else "0" for tick in ticks])
    axes.xaxis.set_ticks([], minor=True)
    axes.axvspan(1 - RIGHT, 1 + RIGHT, color=GOOD, zorder=0)
    axes.axvline(1.0, color=MUTED, linewidth=0.8, zorder=1)
    axes.grid(visible=False, axis="y")


def _ratio_row(axes: "Axes", row: int, scores: Sequence[Score]) -> None:
    ratios = np.array([score.predicted / score.measured for score in scores if score.measured > 0])
    inside = np.clip(ratios, 1 / _CUT, _CUT)
    draw_ticks(axes, inside, row)
    naive = [score.naive / score.measured for score in scores if score.naive and score.measured > 0]
    if naive:
        axes.plot(np.clip(_geometric(naive), 1 / _CUT, _CUT), row, "o", markersize=5.5, markerfacecolor="none",
                  markeredgecolor=OTHER)  # fmt: skip
    axes.plot(np.clip(_geometric(ratios), 1 / _CUT, _CUT), row, "o", color=INK, markersize=4.5)
    found = summarise(scores)
    if found is not None:
        axes.annotate(f"{found.mape:.1f} %  ({found.points})", (1.0, row), xycoords=("axes fraction", "data"),
                      xytext=(6, 0), textcoords="offset points", va="center", color=MUTED, fontsize=7.5,
                      annotation_clip=False)  # fmt: skip


def draw_ticks(axes: "Axes", values: Floats, row: float, color: str = PREDICTED) -> None:
    """Short upright lines, as one path: a marker each would make the file several times as long."""
    gaps = np.full(values.shape, np.nan)
    xs, ys = (
        np.stack([values, values, gaps]),
        np.stack([np.full_like(gaps, row - 0.2), np.full_like(gaps, row + 0.2), gaps]),
    )
    axes.plot(xs.T.ravel(), ys.T.ravel(), "-", color=color, alpha=0.6, linewidth=1.0)


def _geometric(ratios: Sequence[float] | Floats) -> float:
    return float(np.exp(np.mean(np.log(ratios))))
