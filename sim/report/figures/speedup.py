"""Panel 2: speed-up over the baseline against the load, with break-even markers, the loss area and the closed form."""

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import numpy as np
import plotly.graph_objects as go

from sim.report import crossings as be
from sim.report.axis import Axis, Slice
from sim.report.figures.curves import Point, add_curve, gap
from sim.report.palette import INK, LOSS
from sim.report.panel import Chart, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import ArmStyle, arm_styles, figure, load_axis
from sim.report.wording import change, factor, listed, metric_name, number, plain

#: metric column -> label of the switch
METRICS = {
    "output_throughput": "Throughput",
    "mean_tpot_ms": "TPOT",
    "mean_ttft_ms": "TTFT",
    "mean_e2el_ms": "E2E latency",
}
_DEFINITION = (
    "Speed-up is the arm divided by the baseline for rates and the baseline divided by the arm for times, so above 1 "
    "always means that the arm is better. It is the geometric mean over replicates of the paired ratio (same "
    "requests, same random numbers); the band is the t-interval of its logarithm. Diamonds on the line at 1 are "
    "break-even points with their interval; they are interpolated between tested loads and never extrapolated. "
    "The dotted line is the closed form: the same step costs at the mean context, every request decoding, no "
    "queueing, no prefill."
)


def panel(results: Results) -> Panel | None:
    """Speed-up against the load, or one dot per metric at a single operating point; None without a second arm."""
    metrics = [m for m in METRICS if any(results.ratio(c, a, m) for c in results.done for a in results.challengers)]
    if not metrics:
        return None
    if results.axis is None:
        views = [_point_view(results, part, metrics) for part in results.slices]
    else:
        views = [_sweep_view(results, results.axis, part, m) for part in results.slices for m in metrics]
    styles = arm_styles(results)
    legend = [(arm, styles[arm]) for arm in results.challengers]
    main = be.main_objective(results)
    start = metrics.index(main) if results.axis and main in metrics else 0
    kicker = f"Speed-up over {results.baseline}"
    return Panel("speedup", kicker, views, _reading(results), _DEFINITION, start=start, legend=legend)


def _reading(results: Results) -> str:
    words = f"Ratio to {results.baseline}: above 1 the arm is better, in the shaded area it is worse."
    axis, curves = results.axis, results.break_even.get("analytic") or {}
    if axis and any(curve.get("crossings") for table in _entries(results) for curve in table):
        words += " Hollow diamonds: break-even with its interval."
    if axis and axis.analytic and any(curve.get("batch") for curve in curves.values()):
        words += " Dotted: closed form without queueing and prefill."
    return words


def _entries(results: Results) -> list[list[be.Found]]:
    return [
        [found for arm in results.challengers if (found := be.entry(results, arm, objective, part))]
        for part in results.slices
        for objective in be.objectives(results)
    ]


def _sweep_view(results: Results, axis: Axis, part: Slice, metric: str) -> View:
    styles, plot = arm_styles(results), figure(430)
    series = {
        arm: [_point(results, part, i, arm, metric) for i in range(len(part.cells))] for arm in results.challengers
    }
    for arm, points in series.items():
        if axis.analytic and metric == "output_throughput" and len(results.slices) == 1:
            _add_closed_form(plot, arm, styles[arm], results.break_even.get("analytic") or {}, part)
        add_curve(plot, arm, styles[arm], points, axis, factor)
    for arm in results.challengers:
        _add_break_even(plot, arm, styles[arm], be.entry(results, arm, metric, part), results.ci)
    _frame(plot, axis, part, [p for points in series.values() for p in points], metric)
    label = METRICS[metric] + (f" · {part.label}" if part.label else "")
    table = Table(_head(axis), [_row(arm, p) for arm, points in series.items() for p in points])
    return View(label, _finding(results, axis, part, metric), [Chart(plot)], table, _gaps(axis, part))


def _point(results: Results, part: Slice, index: int, arm: str, metric: str) -> Point:
    cell = part.cells[index]
    ratio = results.ratio(cell, arm, metric)
    if ratio is None:
        return gap(cell)
    flag = (
        "saturated: the queue grows without bound"
        if any(results.saturated(cell, each) for each in (arm, results.baseline))
        else ""
    )
    return Point(cell, ratio.speedup, ratio.low, ratio.high, ratio.n, flag)


def _finding(results: Results, axis: Axis, part: Slice, metric: str) -> str:
    clauses = [(arm, be.clause(results, axis, part, arm, metric, title=True)) for arm in results.challengers]
    return be.together(clauses[:4]) + (f"; and {len(clauses) - 4} more arms" if len(clauses) > 4 else "")


def _add_break_even(plot: go.Figure, arm: str, style: ArmStyle, found: Mapping[str, Any] | None, ci: str) -> None:
    for crossing in be.crossings(found) if found else ():
        value = float(crossing["value"])
        low, high = (crossing.get(key) or value for key in ("ci_low", "ci_high"))
        plot.add_scatter(
            x=[value], y=[1], mode="markers+text", legendgroup=plain(arm),
            text=[f"<b>{number(value, 2 if value < 100 else 3)}</b>"],
            textposition="top center", textfont={"color": style.color, "size": 14}, name=f"break-even of {plain(arm)}",
            marker={"symbol": "diamond", "size": 14, "color": "#ffffff", "line": {"color": style.color, "width": 3}},
            error_x={"type": "data", "array": [high - value], "arrayminus": [value - low], "color": style.color,
                     "thickness": 3, "width": 7},
            customdata=[f"<b>{plain(arm)}</b> breaks even at<br>{plain(be.precise(crossing, ci))}"],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip


def _add_closed_form(plot: go.Figure, arm: str, style: ArmStyle, analytic: Mapping[str, Any], part: Slice) -> None:
    curve, loads = analytic.get(arm) or {}, [float(cell.x) for cell in part.cells]
    batch = curve.get("batch") or []
    if len(batch) < 2:
        return
    first, last = max(min(loads), batch[0]), min(max(loads), batch[-1])
    x = np.unique([first, *(b for b in batch if first < b < last), last])
    plot.add_scatter(
        x=x, y=np.interp(np.log(x), np.log(batch), curve["speedup"]), mode="lines", legendgroup=plain(arm),
        name=f"closed form of {plain(arm)}", line={"color": style.color, "width": 1.5, "dash": "dot"},
        hovertemplate=f"<b>{plain(arm)}</b>, closed form<br>batch %{{x:.0f}}: %{{y:.2f}}×<extra></extra>",
    )  # fmt: skip


def _frame(plot: go.Figure, axis: Axis, part: Slice, points: Sequence[Point], metric: str) -> None:
    """Axes, the line at 1 and the shaded loss area."""
    low, high = _range(points)
    xaxis = load_axis(axis, [cell.x for cell in part.cells])
    log = xaxis.get("type") == "log"
    plot.update_layout(
        xaxis=xaxis,
        yaxis={"title": {"text": f"Speed-up of {metric_name(metric)}"}, "range": [low, high], "ticksuffix": "×"},
    )
    for cell in part.cells:
        if not cell.done:
            plot.add_annotation(
                text="no result", textangle=-90, x=log10(cell.x) if log else cell.x, y=high, yanchor="top"
            )
    if low < 1:
        plot.add_hrect(y0=low, y1=1, fillcolor=LOSS, line_width=0, layer="below")
        plot.add_annotation(
            text="slower than the baseline", xref="paper", x=0.01, y=low, yanchor="bottom", xanchor="left"
        )
    plot.add_hline(y=1, line={"color": INK, "width": 1.2})


def _range(points: Sequence[Point]) -> tuple[float, float]:
    values = [v for p in points if p.y == p.y for v in (p.y, p.low or p.y, p.high or p.y)] or [1.0]
    low, high = min(*values, 0.95), max(*values, 1.05)
    pad = 0.07 * (high - low)
    return max(0.0, low - pad), high + pad


def _head(axis: Axis) -> list[str]:
    return [axis.short, "arm", "speed-up", "CI low", "CI high", "pairs", "note"]


def _row(arm: str, point: Point) -> list[str | float | None]:
    note = point.flag or ("" if point.cell.done else f"failed: {point.cell.reason}")
    return [point.cell.x, arm, point.y, point.low, point.high, point.n, note]


def _gaps(axis: Axis, part: Slice) -> list[str]:
    return [
        f"{'Runs failed' if cell.done else 'No result'} at {axis.say(cell.x)}: {cell.reason}"
        for cell in part.cells
        if cell.reason
    ]


def _point_view(results: Results, part: Slice, metrics: Sequence[str]) -> View:
    """A single operating point: one dot per metric and arm."""
    cell, styles = part.cells[0], arm_styles(results)
    plot, rows = figure(150 + 60 * len(metrics)), []
    for place, arm in enumerate(results.challengers):
        known = [(m, r) for m in metrics if (r := results.ratio(cell, arm, m))]
        offset = 0.22 * (place - (len(results.challengers) - 1) / 2)
        plot.add_scatter(
            x=[r.speedup for _, r in known],
            y=[len(metrics) - 1 - metrics.index(m) - offset for m, _ in known],
            error_x={
                "type": "data",
                "array": [(r.high or r.speedup) - r.speedup for _, r in known],
                "arrayminus": [r.speedup - (r.low or r.speedup) for _, r in known],
            },
            mode="markers+text",
            text=[factor(r.speedup) for _, r in known],
            textposition="top center",
            marker={"size": 12, "symbol": styles[arm].symbol, "color": styles[arm].color},
            customdata=[
                f"<b>{plain(arm)}</b><br>{metric_name(m)}: {factor(r.speedup)}<br>{results.ci} {number(r.low)} to "
                f"{number(r.high)}, n = {r.n} pairs" for m, r in known
            ],
            hovertemplate="%{customdata}<extra></extra>",
            legendgroup=plain(arm),
            name=plain(arm),
        )  # fmt: skip
        rows += [[metric_name(m), arm, r.speedup, r.low, r.high, r.n, r.verdict] for m, r in known]
    _frame_point(plot, [metric_name(m) for m in reversed(metrics)], rows)
    head = ["metric", "arm", "speed-up", "CI low", "CI high", "pairs", "verdict"]
    return View(part.label, _point_finding(results, part, be.main_objective(results)), [Chart(plot)], Table(head, rows))


def _frame_point(plot: go.Figure, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    values = [v for row in rows for v in row[2:5] if v is not None] or [1.0]
    low, high = min(*values, 0.9), max(*values, 1.1)
    pad = 0.08 * (high - low)
    plot.update_layout(
        xaxis={"title": {"text": "Speed-up over the baseline"}, "range": [low - pad, high + pad], "ticksuffix": "×"},
        yaxis={"tickvals": list(range(len(names))), "ticktext": list(names), "range": [-0.6, len(names) - 0.4]},
    )
    plot.add_vrect(x0=low - pad, x1=1, fillcolor=LOSS, line_width=0, layer="below")
    plot.add_vline(x=1, line={"color": INK, "width": 1.2})


def _point_finding(results: Results, part: Slice, metric: str) -> str:
    known = [(arm, r) for arm in results.challengers if (r := results.ratio(part.cells[0], arm, metric))]
    words = [
        f"{arm} is {change(r.speedup) if r.verdict != 'not resolved' else 'not measurably different'}"
        for arm, r in known
    ]
    return f"By {metric_name(metric)}, {listed(words)}"
