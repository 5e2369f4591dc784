"""Panel 8: requests, KV use and, where it is a choice, K over simulated time, first replicate of each arm."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from sim.report.axis import Cell
from sim.report.figures.latency_cdf import cell_label
from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import arm_styles, figure
from sim.report.wording import listed, number, percent, plain

COLUMNS = {"running": "Running requests", "waiting": "Waiting requests", "kv_usage": "KV cache in use"}
#: shown where K is a choice
K_COLUMN = {"k_mean": "Drafts per request (K)"}
#: points of all curves of the page together, and per curve
_BUDGET, _MOST, _LEAST = 20_000, 2000, 100
_DEFINITION = (
    "Sampled at a fixed interval of simulated time and thinned by keeping the lowest and highest value of each "
    "stretch. Running counts requests scheduled in a step, waiting those queued or preempted. KV use is the share of "
    "KV blocks held. K is what the drafter was asked for, the largest where requests differ."
)
Floats = NDArray[np.float64]


def panel(results: Results) -> Panel | None:
    """One view per cell; None when no run left a timeline."""
    cells = [cell for cell in results.done if any(_path(results, cell, arm) for arm in results.arms)]
    if not cells:
        return None
    columns = COLUMNS | (K_COLUMN if len(results.regret) else {})
    most = int(np.clip(_BUDGET // (len(cells) * len(results.arms) * len(columns)), _LEAST, _MOST))
    styles = arm_styles(results)
    views = [_view(results, cell, columns, most) for cell in cells]
    legend = [(arm, styles[arm]) for arm in results.arms]
    reading = (
        "Simulated time of the first replicate. Warm-up and cool-down are included here, unlike in the figures above."
    )
    start = len(views) - 1
    return Panel("timeline", "Timeline", views, reading, _DEFINITION, "At", start=start, legend=legend)


def _path(results: Results, cell: Cell, arm: str) -> Path | None:
    folders = results.replicates(cell, arm)
    path = folders[0] / "timeline.parquet" if folders else None
    return path if path and path.is_file() else None


def _view(results: Results, cell: Cell, columns: Mapping[str, str], most: int) -> View:
    styles, rows = arm_styles(results), list[list[Entry]]()
    plots = {column: figure(260) for column in columns}
    peaks: dict[str, tuple[float, float]] = {}
    for arm, style in styles.items():
        path = _path(results, cell, arm)
        if path is None:
            continue
        table = parquet.read_table(path, columns=["t_s", *columns], use_threads=False)
        time = table["t_s"].to_numpy().astype(float)
        series = {column: table[column].to_numpy().astype(float) for column in columns}
        for column, values in series.items():
            known = np.isfinite(values)  # K of an interval without a step is unknown
            x, y = thin(time[known], values[known], most)
            plots[column].add_scatter(
                x=x.astype(np.float32), y=y.astype(np.float32), mode="lines", name=plain(arm), legendgroup=plain(arm),
                line={"color": style.color, "width": 1.6},
                hovertemplate=f"<b>{plain(arm)}</b><br>%{{x:.2f}} s: %{{y}}<extra></extra>",
            )  # fmt: skip
            if known.any():
                rows.append([arm, columns[column], *(float(f(values[known])) for f in (np.mean, np.max))])
        peaks[arm] = (float(series["waiting"].max()), float(series["kv_usage"].max()))
    for column, plot in plots.items():
        _frame(plot, column)
    charts = [Chart(plots[column], title) for column, title in columns.items()]
    return View(cell_label(results, cell), _finding(peaks), charts, Table(["arm", "series", "mean", "peak"], rows))


def thin(time: Floats, values: Floats, most: int) -> tuple[Floats, Floats]:
    """At most `most` points: the lowest and the highest of each stretch, in the order of time."""
    if len(values) <= most:
        return time, values
    edges = np.linspace(0, len(values), most // 2 + 1).astype(int)
    keep = sorted(
        {a + int(place) for a, b in pairwise(edges) for place in (values[a:b].argmin(), values[a:b].argmax())}
    )
    return time[keep], values[keep]


def _frame(plot: go.Figure, column: str) -> None:
    plot.update_layout(
        xaxis={"title": {"text": "Simulated time (s)"}},
        yaxis={"rangemode": "tozero", "nticks": 6, "tickformat": ".0%" if column == "kv_usage" else None},
        margin={"l": 52, "r": 12, "t": 8, "b": 48},
    )


def _finding(peaks: dict[str, tuple[float, float]]) -> str:
    waiting = {arm: peak for arm, (peak, _) in peaks.items()}
    groups: dict[str, list[str]] = {}
    for arm, (_, kv) in peaks.items():
        groups.setdefault(percent(kv), []).append(arm)
    use = [f"{share} with {listed(arms) if len(groups) > 1 else 'every arm'}" for share, arms in groups.items()]
    most = max(waiting, key=waiting.__getitem__)
    queue = f"up to {number(waiting[most])} requests wait ({most})" if waiting[most] > 0 else "no request ever waits"
    return f"KV use peaks at {listed(use)}; {queue}"
