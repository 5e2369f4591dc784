"""A metric along the sweep with its band: what the speed-up and the load panels share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from sim.report.axis import Axis, Cell, say_value
from sim.report.style import ArmStyle
from sim.report.wording import plain


@dataclass(frozen=True, slots=True)
class Point:
    """One arm at one load; `y` is NaN for a gap."""

    cell: Cell
    y: float
    low: float | None
    high: float | None
    n: int
    flag: str = ""


def gap(cell: Cell) -> Point:
    """A point that has no value."""
    return Point(cell, math.nan, None, None, 0)


def add_curve(
    figure: go.Figure, arm: str, style: ArmStyle, points: Sequence[Point], axis: Axis, say: Callable[[float], str]
) -> None:
    """Band, line and markers of one arm; saturated points are hollow and failed ones leave a gap."""
    for run in _runs(points):
        _add_band(figure, arm, style, run)
    figure.add_scatter(
        x=[p.cell.x for p in points],
        y=[p.y for p in points],
        customdata=[_tip(arm, p, axis, say) for p in points],
        hovertemplate="%{customdata}<extra></extra>",
        mode="lines+markers" if axis.numeric else "markers",
        line={"color": style.color, "width": 2.5, "dash": style.dash},
        marker={
            "size": 9,
            "symbol": [style.symbol + ("-open" if p.flag else "") for p in points],
            "color": style.color,
        },
        name=plain(arm),
        legendgroup=plain(arm),
        connectgaps=False,
    )


def add_bars(
    figure: go.Figure, arms: Sequence[tuple[str, ArmStyle]], points: Sequence[Point], say: Callable[[float], str]
) -> None:
    """One bar per arm with its interval: the fall-back when nothing is varied."""
    for (arm, style), point in zip(arms, points, strict=True):
        figure.add_bar(
            x=[plain(arm)],
            y=[point.y],
            error_y=_whisker([point]),
            marker={"color": style.color},
            customdata=[_tip(arm, point, None, say)],
            hovertemplate="%{customdata}<extra></extra>",
            text=[say(point.y)],
            textposition="inside",
            insidetextanchor="start",
            textfont={"color": "#ffffff", "size": 14},
            width=0.5,
            legendgroup=plain(arm),
            name=plain(arm),
        )


def _whisker(points: Sequence[Point]) -> dict[str, object]:
    ups = [p.high - p.y if p.high is not None else 0 for p in points]
    downs = [p.y - p.low if p.low is not None else 0 for p in points]
    return {"type": "data", "array": ups, "arrayminus": downs, "thickness": 1.5, "width": 8}


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """Stretches of neighbouring points that have an interval."""
    runs: list[list[Point]] = [[]]
    for point in points:
        if point.low is None or point.high is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def _add_band(figure: go.Figure, arm: str, style: ArmStyle, run: Sequence[Point]) -> None:
    x = [p.cell.x for p in run]
    figure.add_scatter(
        x=x + x[::-1],
        y=[p.high for p in run] + [p.low for p in run][::-1],
        fill="toself",
        fillcolor=style.band,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=plain(arm),
    )


def _tip(arm: str, point: Point, axis: Axis | None, say: Callable[[float], str]) -> str:
    lines = [f"<b>{plain(arm)}</b>"]
    if axis:
        lines.append(plain(f"{axis.short} {say_value(point.cell.x)}"))
        lines += [plain(point.cell.others)] if axis.in_step and point.cell.others else []
    lines.append(f"<b>{say(point.y)}</b>")
    if point.low is not None and point.high is not None:
        lines.append(f"CI {say(point.low)} to {say(point.high)}")
    lines.append(f"n = {point.n} replicates")
    return "<br>".join([*lines, plain(point.flag)] if point.flag else lines)
