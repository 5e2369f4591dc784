"""Pictures of the page `server`: whole servers by concurrency, and what recorded engines held, second by second."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.report.palette import MUTED
from sim.report.validation.canvas import (
    GOOD,
    MEASURED,
    PREDICTED,
    SERIES,
    Picture,
    Sheet,
    draw_dots,
    log_ticks,
    name_panel,
    thinned,
)
from sim.report.validation.panels import RIGHT, ratio_rows
from sim.validation.recorded_series import Series
from sim.validation.scores import Score
from sim.validation.server_suite import ServerSuite, server_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUANTITIES = ("TPOT", "TTFT")
#: Points of a drawn series: one in so many seconds.
_MOST_POINTS = 500


def server_pictures(suite: ServerSuite) -> Iterator[Picture]:
    """All of the page: `server-groups`, `server-tpot`, `server-ttft`, `server-series`."""
    groups = [(_two_lines(name), scores) for name, scores in server_groups(suite) if scores]
    if groups:
        yield Picture("server-groups", "Predicted over measured latencies, a row per server.", ratio_rows(groups))
    scores = (*suite.points.dense, *suite.points.experts)
    for quantity in _QUANTITIES:
        mine = [score for score in scores if score.quantity == quantity]
        if mine:
            alt = f"Predicted over measured {quantity} against concurrency, a panel per server."
            yield Picture(f"server-{quantity.lower()}", alt, _by_concurrency(quantity, mine))
    series = [one for run in suite.runs for one in run.series]
    if series:
        alt = "Running and waiting requests and KV use of recorded runs over time, measured and simulated."
        yield Picture("server-series", alt, _series(series))


def _two_lines(name: str) -> str:
    """What and model above GPU, engine and precision; organisations left out."""
    *what, last = (part.rsplit("/", 1)[-1] for part in name.split(", ", 2))
    return ", ".join(what) + ("\n" if what else "") + last


def _by_concurrency(quantity: str, scores: Sequence[Score]) -> str:
    names = list(dict.fromkeys(score.group for score in scores))
    title = f"{quantity}, predicted / measured, against concurrency; a colour per number of GPUs. Green: within 10 %."
    sheet = Sheet(len(names), 3, 2.0, title=title)
    lowest, highest = (f([score.predicted / score.measured for score in scores]) for f in (min, max))
    for axes, name in zip(sheet.panels, names, strict=True):
        model, rest = name.split(", ", 1)
        name_panel(axes, model.rsplit("/", 1)[-1], rest)
        axes.axhspan(1 - RIGHT, 1 + RIGHT, color=GOOD, zorder=0)
        axes.axhline(1.0, color=MUTED, linewidth=0.8)
        _points(axes, [score for score in scores if score.group == name])
        axes.set_ylim(max(0.95 * lowest, 0.05), max(1.25 * highest, 1.25))
        log_ticks(axes, [t for t in (0.1, 0.2, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0) if lowest / 1.1 < t < highest * 1.1], "y")
    return sheet.svg()


def _points(axes: "Axes", scores: Sequence[Score]) -> None:
    layouts = sorted({_layout(score) for score in scores}, key=lambda text: (len(text), text))
    for color, layout in zip(SERIES, layouts, strict=False):
        mine = [score for score in scores if _layout(score) == layout]
        loads, ratios = ([float(s.load) for s in mine], [s.predicted / s.measured for s in mine])
        draw_dots(axes, np.array(loads), np.array(ratios), color)
    log_ticks(axes, thinned([float(score.load) for score in scores], 1.9))
    for place, (color, layout) in enumerate(zip(SERIES, layouts, strict=False)):
        axes.annotate(layout, (0.02 + 0.12 * place, 0.91), xycoords="axes fraction", color=color, fontsize=7)


def _layout(score: Score) -> str:
    """`TP4`, as the name of a setting ends."""
    return score.name.split(", ", 1)[-1].replace("expert parallel", "EP")


def _series(series: Sequence[Series]) -> str:
    title = "State of the engine by the second. Black: recorded. Blue: simulated from the same requests."
    runs = list(dict.fromkeys(one.name for one in series))
    kinds = list(dict.fromkeys(one.what for one in series))
    sheet = Sheet(len(runs) * len(kinds), len(kinds), 1.9, title=title)
    places = {(name, what): axes for axes, (name, what) in
              zip(sheet.panels, ((name, what) for name in runs for what in kinds), strict=True)}  # fmt: skip
    for one in series:
        axes = places.pop((one.name, one.what))
        name_panel(
            axes, one.name, f"{one.what}{', %' if one.what == 'KV use' else ''}: RMS {one.rms:.1f} % of the range"
        )
        every = max(1, -(-len(one.seconds) // _MOST_POINTS))
        minutes = one.seconds[::every] / 60
        axes.plot(minutes, one.measured[::every], color=MEASURED, linewidth=0.9)
        axes.plot(minutes, one.simulated[::every], color=PREDICTED, linewidth=0.9, alpha=0.85)
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
    for axes in places.values():
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not recorded", color=MUTED, ha="center", transform=axes.transAxes, fontsize=7.5)
    return sheet.svg()
