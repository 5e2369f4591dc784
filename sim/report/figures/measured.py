"""Load tests of a real server as hollow markers on simulated curves."""

from collections.abc import Callable

import plotly.graph_objects as go

from sim.bench_results.base import MeasuredPoint
from sim.report.axis import Axis
from sim.report.reader import Results
from sim.report.style import arm_styles
from sim.report.wording import number, plain

#: How to read the markers; follows the reading of a panel that has some.
READING = " Large hollow markers with a dot are load tests of the real server, over the whole of each test."

#: A coordinate of a point, or None where its file does not say.
Coordinate = Callable[[MeasuredPoint], float | None]
#: (arm, point, x, y) of a marker.
Mark = tuple[str, MeasuredPoint, float, float]


def load_on(axis: Axis | None) -> Coordinate:
    """Where a point lies on the axis of a sweep; nowhere when loads are not what is varied."""
    leaf = axis.leaf if axis is not None else ""

    def place(point: MeasuredPoint) -> float | None:
        return {"max_concurrency": point.load.max_concurrency, "request_rate": point.load.request_rate}.get(leaf)

    return place


def marks(results: Results, x: Coordinate, y: Coordinate) -> list[Mark]:
    """All points that have both coordinates."""
    found = [(arm, point, x(point), y(point)) for arm, points in results.measured.items() for point in points]
    return [(arm, point, a, b) for arm, point, a, b in found if a is not None and b is not None]


def add_marks(plot: go.Figure, results: Results, found: list[Mark], unit: str) -> None:
    """One trace per arm, in its colour and symbol."""
    styles = arm_styles(results)
    for arm in dict.fromkeys(arm for arm, *_ in found):
        mine = [mark for mark in found if mark[0] == arm]
        plot.add_scatter(
            x=[x for _, _, x, _ in mine],
            y=[y for *_, y in mine],
            mode="markers",
            marker={
                "size": 13,
                "symbol": f"{styles[arm].symbol}-open-dot",
                "color": styles[arm].color,
                "line": {"width": 2},
            },
            customdata=[_tip(*mark, unit) for mark in mine],
            hovertemplate="%{customdata}<extra></extra>",
            name=plain(f"{arm}, measured"),
            legendgroup=plain(arm),
            cliponaxis=False,
        )


def _tip(arm: str, point: MeasuredPoint, x: float, y: float, unit: str) -> str:
    lines = [f"<b>{plain(arm)}, measured</b>", plain(str(point.load)), f"<b>{number(y)} {unit}</b>"]
    return "<br>".join([*lines, plain(f"{point.tool}, {point.completed} requests")])
