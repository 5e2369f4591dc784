"""Pictures of the overview: mean errors beside targets and others, and every pair of predicted and measured."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.report.palette import INK, MUTED
from sim.report.validation.canvas import (
    GOOD,
    OTHER,
    PREDICTED,
    SERIES,
    Floats,
    Picture,
    Sheet,
    decades,
    draw_dots,
    log_ticks,
    name_panel,
)
from sim.report.validation.panels import RIGHT
from sim.validation.headlines import Cloud, Headline
from sim.validation.overview import SuiteSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Clouds of more points are drawn as squares of this share of a decade, dark where points are many.
_MOST_POINTS, _SQUARE = 1500, 1 / 16
#: Errors beyond this are written at the edge, per cent.
_WIDEST = 72.0
#: Names of sources in the upper left corner of a panel; the others are in the lower right one.
_IN_A_CORNER = 4
_ERRORS = (
    "Mean absolute error, %. Bars: this simulator, green where the target is met; upright line: the target. "
    "Ring: naive model (triangle: beyond the edge). Cross: another simulator."
)


def overview_pictures(suites: Sequence[SuiteSummary]) -> Iterator[Picture]:
    """`overview-errors` and `overview-pairs`."""
    headlines = [(suite.name, one) for suite in suites for one in suite.headlines]
    if headlines:
        alt = "Mean error of each part of the simulator beside its target, the naive model and other simulators."
        yield Picture("overview-errors", alt, _errors(headlines))
    clouds = [cloud for suite in suites for cloud in suite.clouds]
    if clouds:
        alt = "Predicted against measured, all figures, by what was measured; the band is 10 per cent."
        yield Picture("overview-pairs", alt, _pairs(clouds))


def _errors(headlines: Sequence[tuple[str, Headline]]) -> str:
    sheet = Sheet(1, 1, 0.8 + 0.235 * len(headlines), title=_ERRORS)
    axes, names, places = sheet.panels[0], list[str](), list[float]()
    for row, (suite, one) in enumerate(headlines):
        place = row + 0.7 * len({name for name, _ in headlines[:row]} | {suite})
        names.append(one.name)
        places.append(place)
        _headline(axes, place, one)
    for suite in dict.fromkeys(name for name, _ in headlines):
        first = next(place for place, (name, _) in zip(places, headlines, strict=True) if name == suite)
        axes.annotate(suite, (0, first - 0.8), xytext=(-6, 0), textcoords="offset points", ha="right", va="center",
                      color=INK, fontsize=8.5, fontweight="bold", annotation_clip=False)  # fmt: skip
    axes.set_yticks(places, names, fontsize=7.8)
    axes.set_ylim(places[-1] + 0.7, places[0] - 1.3)
    axes.set_xlim(0, _WIDEST)
    axes.grid(visible=False, axis="y")
    return sheet.svg()


def _headline(axes: "Axes", place: float, one: Headline) -> None:
    color = SERIES[7] if one.target is None else SERIES[2] if one.mape <= one.target else OTHER
    axes.barh(place, min(one.mape, _WIDEST), 0.62, color=color, alpha=0.75, linewidth=0)
    axes.annotate(f"{one.mape:.1f} %", (1.0, place), xycoords=("axes fraction", "data"), xytext=(34, 0), va="center",
                  textcoords="offset points", ha="right", fontsize=7.8, color=INK, annotation_clip=False)  # fmt: skip
    if one.target is not None:
        axes.plot([one.target, one.target], [place - 0.42, place + 0.42], color=INK, linewidth=1.3)
    if one.naive is not None:
        marker = ">" if one.naive > _WIDEST else "o"
        axes.plot(min(one.naive, _WIDEST), place, marker, markersize=5, markerfacecolor="white", markeredgecolor=MUTED,
                  clip_on=False)  # fmt: skip
    if one.peer is not None:
        axes.plot(one.peer, place, "x", markersize=5.5, color=SERIES[3], markeredgewidth=1.6)


def _pairs(clouds: Sequence[Cloud]) -> str:
    names = list(dict.fromkeys(cloud.panel for cloud in clouds))
    title = "Predicted (up) against measured (right), a dot per figure. Line: equal. Green: within 10 %."
    sheet = Sheet(len(names), 3, 2.9, title=title)
    for axes, name in zip(sheet.panels, names, strict=True):
        mine = [cloud for cloud in clouds if cloud.panel == name]
        measured, predicted = (np.concatenate([getattr(c, x) for c in mine]) for x in ("measured", "predicted"))
        error = 100 * float(np.abs(predicted / measured - 1).mean())
        name_panel(axes, f"{name}: {measured.size:,} figures, mean error {error:.1f} %")
        _band(axes, measured, predicted)
        if measured.size > _MOST_POINTS:
            _squares(axes, measured, predicted)
        else:
            _series(axes, mine)
        axes.set_box_aspect(1.0)
    return sheet.svg()


def _band(axes: "Axes", measured: Floats, predicted: Floats) -> None:
    both = np.concatenate([measured, predicted])
    ends = np.array([both.min() / 1.25, both.max() * 1.25])
    ticks = decades(ends[0], ends[1])
    log_ticks(axes, ticks)
    log_ticks(axes, ticks, "y")
    axes.fill_between(ends, ends * (1 - RIGHT), ends * (1 + RIGHT), color=GOOD, linewidth=0, zorder=0)
    axes.plot(ends, ends, color=MUTED, linewidth=0.8, zorder=1)
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)


def _squares(axes: "Axes", measured: Floats, predicted: Floats) -> None:
    cells = np.floor(np.log10(np.stack([measured, predicted])) / _SQUARE)
    (xs, ys), counts = np.unique(cells, axis=1, return_counts=True)
    shade = np.clip(0.25 + 0.25 * np.log10(counts), 0.25, 1.0)
    for level in np.unique(np.round(shade, 1)):
        own = np.round(shade, 1) == level
        gaps = np.full(own.sum(), np.nan)
        left, right, up = xs[own] * _SQUARE, (xs[own] + 1) * _SQUARE, (ys[own] + 0.5) * _SQUARE
        axes.plot(10 ** np.stack([left, right, gaps]).T.ravel(), 10 ** np.stack([up, up, gaps]).T.ravel(), "-",
                  color=PREDICTED, alpha=float(level), linewidth=2.3, solid_capstyle="butt")  # fmt: skip


def _series(axes: "Axes", clouds: Sequence[Cloud]) -> None:
    """A colour per source, the largest first; they are named in the order of their colours."""
    sources: dict[str, list[Cloud]] = {}
    for cloud in clouds:
        sources.setdefault(_source(cloud.series), []).append(cloud)
    for at, (source, own) in enumerate(sources.items()):
        color = SERIES[at % len(SERIES)]
        for cloud in own:
            draw_dots(axes, cloud.measured, cloud.predicted, color, 2.8)
        place = (0.03, 0.95 - 0.075 * at) if at < _IN_A_CORNER else (0.97, 0.05 + 0.075 * (at - _IN_A_CORNER))
        axes.annotate(source, place, xycoords="axes fraction", color=color, fontsize=6.8, va="center",
                      ha="left" if at < _IN_A_CORNER else "right")  # fmt: skip


def _source(series: str) -> str:
    """The source of a group of speed-ups, or GPU and engine of a server."""
    if ":" in series:
        return series.split(":")[0].split(",")[0].split(" / ")[0][:32]
    parts = series.split(", ")
    return f"{parts[1]}, {parts[2]}" if len(parts) > 2 else series
