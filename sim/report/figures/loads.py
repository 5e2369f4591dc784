"""Panel 3: absolute throughput and latency against the load, every arm."""

from typing import Any

from sim.report import crossings as be
from sim.report.axis import Axis, Slice, say_value
from sim.report.figures.curves import Point, add_bars, add_curve, gap
from sim.report.figures.measured import READING, add_marks, load_on, marks
from sim.report.panel import Chart, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import arm_styles, figure, load_axis
from sim.report.wording import METRICS as NAMES
from sim.report.wording import capital, listed, metric_name, metric_unit, number

#: metric column -> (label of the switch, key of its objective in the scenario's `slo`)
METRICS = {
    "output_throughput": ("Throughput", ""),
    "mean_tpot_ms": ("TPOT", ""),
    "p99_tpot_ms": ("p99 TPOT", "tpot"),
    "p99_ttft_ms": ("p99 TTFT", "ttft"),
    "p99_e2el_ms": ("p99 E2E", "e2el"),
}
_DEFINITION = (
    "Mean over replicates with its t-interval. Output throughput counts output tokens of all requests per "
    "second of simulated time, warm-up excluded. TPOT of a request = (E2E latency - TTFT) / (output tokens - 1). "
    "Absolute figures inherit the error of the cost model; ratios between arms are more reliable."
)


def panel(results: Results) -> Panel:
    """Curves along the sweep, or one bar per arm at a single operating point."""
    metrics = [m for m in METRICS if any(results.level(c, a, m) for c in results.done for a in results.arms)]
    views = [_view(results, part, metric) for part in results.slices for metric in metrics]
    styles = arm_styles(results)
    main = be.main_objective(results)
    start = metrics.index(main) if main in metrics else 0
    reading = f"Mean over replicates with its {results.ci}. "
    reading += "Much of it is common to all arms and cancels in the speed-up."
    reading += READING if marks(results, load_on(results.axis), lambda point: 0.0) else ""
    legend = [(arm, styles[arm]) for arm in results.arms]
    return Panel("loads", "Absolute figures", views, reading, _DEFINITION, start=start, legend=legend)


def _view(results: Results, part: Slice, metric: str) -> View:
    styles, plot, unit = arm_styles(results), figure(400), metric_unit(metric)
    series = {arm: [_point(results, part, i, arm, metric) for i in range(len(part.cells))] for arm in results.arms}
    axis_y = {"title": {"text": f"{capital(metric_name(metric))} ({unit})"}, "rangemode": "tozero"}

    def say(value: float | None) -> str:
        return f"{number(value)} {unit}"

    if results.axis is None:
        add_bars(plot, list(styles.items()), [points[0] for points in series.values()], say)
        plot.update_layout(yaxis=axis_y)
    else:
        for arm, points in series.items():
            add_curve(plot, arm, styles[arm], points, results.axis, say)
        plot.update_layout(xaxis=load_axis(results.axis, [c.x for c in part.cells]), yaxis=axis_y)
    found = marks(results, load_on(results.axis), lambda point: point.metrics.get(metric))
    add_marks(plot, results, found, unit)
    _add_slo(plot, results, metric, series.values())
    label = METRICS[metric][0] + (f" · {part.label}" if part.label and len(results.slices) > 1 else "")
    head = [results.axis.short if results.axis else "cell", "arm", unit, "CI low", "CI high", "runs", "note"]
    rows = [_row(arm, point, part) for arm, points in series.items() for point in points]
    rows += [[x, arm, y, None, None, None, f"measured, {point.tool}"] for arm, point, x, y in found]
    return View(label, _finding(series, metric, results.axis), [Chart(plot)], Table(head, rows), _saturated(series))


def _point(results: Results, part: Slice, index: int, arm: str, metric: str) -> Point:
    cell = part.cells[index]
    level = results.level(cell, arm, metric)
    if level is None:
        return gap(cell)
    flag = "saturated: the queue grows without bound" if results.saturated(cell, arm) else ""
    return Point(cell, level.mean, level.low, level.high, level.n, flag)


def _add_slo(plot: Any, results: Results, metric: str, series: Any) -> None:
    slo, key = results.scenario.get("slo"), METRICS[metric][1]
    limit = slo.get(key) if isinstance(slo, dict) and key else None
    top = max((p.y for points in series for p in points if p.y == p.y), default=0)
    if not isinstance(limit, int | float) or not 0 < limit <= 2 * top:
        return
    plot.add_hline(y=limit, line={"width": 1.2, "dash": "dot"})
    plot.add_annotation(text=f"SLO {number(limit)} ms", xref="paper", x=1, xanchor="right", y=limit, yanchor="bottom")


def _finding(series: dict[str, list[Point]], metric: str, axis: Axis | None) -> str:
    """The best arm at the highest load, or where each arm peaks."""
    more, unit = NAMES[metric][2], metric_unit(metric)
    known = {arm: [p for p in points if p.y == p.y] for arm, points in series.items()}
    known = {arm: points for arm, points in known.items() if points}
    if not known:
        return f"No results for {metric_name(metric)}"
    if axis is None:
        words = [f"{number(points[0].y)} with {arm}" for arm, points in known.items()]
        return f"{capital(metric_name(metric))} ({unit}): {listed(words)}"
    pick = max if more else min
    last = {arm: points[-1] for arm, points in known.items()}
    best = pick(last, key=lambda arm: last[arm].y)
    first = {arm: points[0] for arm, points in known.items()}
    early = pick(first, key=lambda arm: first[arm].y)
    name = capital(metric_name(metric))
    if all(_spread(ends) < 0.01 for ends in (first, last)):
        return f"{name} is the same for every arm at the lowest and the highest load"
    if early == best:
        return (
            f"{name}: {best} is best at the lowest and the highest load "
            f"({number(first[early].y)} and {number(last[best].y)} {unit})"
        )
    return (
        f"{name}: {early} is best at {axis.short} {say_value(first[early].cell.x)} "
        f"({number(first[early].y)} {unit}), {best} at {say_value(last[best].cell.x)} ({number(last[best].y)} {unit})"
    )


def _spread(points: dict[str, Point]) -> float:
    values = [point.y for point in points.values()]
    return max(values) / min(values) - 1 if min(values) > 0 else 0.0


def _row(arm: str, point: Point, part: Slice) -> list[str | float | None]:
    note = point.flag or ("" if point.cell.done else f"failed: {point.cell.reason}")
    place = point.cell.x if point.cell.x is not None else part.label or point.cell.cell_id
    return [place, arm, point.y, point.low, point.high, point.n, note]


def _saturated(series: dict[str, list[Point]]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for arm, points in series.items():
        if flagged := [say_value(p.cell.x) for p in points if p.flag]:
            groups.setdefault(listed(flagged), []).append(arm)
    return [
        f"Saturated at {loads}: {listed(arms)} (hollow markers). The queue grows without bound, so latencies there "
        "depend on how long the run lasted."
        for loads, arms in groups.items()
    ]
