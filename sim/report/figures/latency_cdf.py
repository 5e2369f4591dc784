"""Panel 5: distribution of TTFT, TPOT, ITL and E2E latency at a chosen load, all replicates pooled."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from sim.report.axis import Cell, say_value
from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import arm_styles, figure
from sim.report.wording import number, percent, plain

METRICS = {
    "ttft_ms": "Time to first token (TTFT)",
    "tpot_ms": "Time per output token (TPOT)",
    "itl_ms": "Inter-token latency (ITL), per chunk",
    "e2el_ms": "End-to-end latency (E2E)",
}
#: points of all curves of the page together, and per curve
_BUDGET, _MOST, _LEAST = 16_000, 500, 60
_DEFINITION = (
    "Share of requests (chunks for ITL) that are at least as fast, all replicates pooled, warm-up requests left out. "
    "A trap: ITL as vLLM reports it is the gap between streamed chunks. Under speculation a chunk holds several "
    "tokens, so ITL can rise while every token arrives sooner. Compare TPOT, not ITL."
)
Floats = NDArray[np.float64]


def panel(results: Results) -> Panel | None:
    """One view per cell; None when no run left its requests."""
    cells = [cell for cell in results.done if any(results.replicates(cell, arm) for arm in results.arms)]
    if not cells:
        return None
    count = int(np.clip(_BUDGET // (len(cells) * len(results.arms) * len(METRICS)), _LEAST, _MOST))
    levels = _levels(count)
    views = [_view(results, cell, levels) for cell in cells]
    styles = arm_styles(results)
    legend = [(arm, styles[arm]) for arm in results.arms]
    reading = "Further left is faster. The height is the share of requests that are at least as fast."
    start = len(views) // 2
    kicker = "Latency distributions"
    return Panel("latency", kicker, views, reading, _DEFINITION, "At", start=start, legend=legend)


def cell_label(results: Results, cell: Cell) -> str:
    """The load of a cell, for a switch."""
    head = results.axis.say(cell.x) if results.axis else "this operating point"
    return f"{head} · {cell.others}" if cell.others and len(results.slices) > 1 else head


def _levels(count: int) -> Floats:
    """Shares from 0 to 1, denser towards the tail."""
    return np.unique(np.concatenate([np.linspace(0, 0.9, 2 * count // 3), 1 - np.geomspace(0.1, 1e-3, count // 3)]))


def _view(results: Results, cell: Cell, levels: Floats) -> View:
    styles, rows = arm_styles(results), list[list[Entry]]()
    plots = {metric: figure(300) for metric in METRICS}
    medians: dict[str, dict[str, float]] = {metric: {} for metric in METRICS}
    spans: dict[str, tuple[float, float]] = {}
    for arm, style in styles.items():
        for metric, (curve, n) in _curves(results, cell, arm, levels).items():
            plots[metric].add_scatter(
                x=curve.astype(np.float32), y=levels.astype(np.float32), mode="lines", name=plain(arm),
                legendgroup=plain(arm), line={"color": style.color, "width": 2.2, "dash": style.dash},
                hovertemplate=f"<b>{plain(arm)}</b><br>%{{y:.1%}} within %{{x:.4g}} ms<br>n = {n:,}<extra></extra>",
            )  # fmt: skip
            low, high = spans.get(metric, (np.inf, 0.0))
            spans[metric] = min(low, float(curve[2])), max(high, float(curve[-1]))
            points = [float(np.interp(q, levels, curve)) for q in (0.5, 0.9, 0.99)]
            medians[metric][arm] = points[0]
            rows.append([METRICS[metric], arm, *points, float(n)])
    for metric, span in spans.items():
        _frame(plots[metric], *span)
    charts = [Chart(plots[metric], title) for metric, title in METRICS.items() if medians[metric]]
    head = ["metric", "arm", "median (ms)", "p90 (ms)", "p99 (ms)", "samples"]
    return View(cell_label(results, cell), _finding(results, cell, medians), charts, Table(head, rows))


def _curves(results: Results, cell: Cell, arm: str, levels: Floats) -> dict[str, tuple[Floats, int]]:
    folders = results.replicates(cell, arm)
    columns = _samples(folders)
    found = {name: (np.quantile(values, levels), values.size) for name, values in columns.items() if values.size}
    itl = _histogram_curve(results, cell, arm, levels)
    if itl:
        found["itl_ms"] = itl
    return {metric: found[metric] for metric in METRICS if metric in found}


def _samples(folders: Sequence[Path]) -> dict[str, Floats]:
    """TTFT, TPOT and E2E of all measured requests of some runs."""
    names = ("ttft_ms", "tpot_ms", "e2el_ms")
    parts: dict[str, list[Floats]] = {name: [] for name in names}
    for path in (folder / "requests.parquet" for folder in folders):
        if path.is_file():
            table = parquet.read_table(path, columns=[*names, "is_measured"], use_threads=False)
            measured = table["is_measured"].to_numpy().astype(bool)
            for name in names:
                values = table[name].to_numpy().astype(float)[measured]
                parts[name].append(values[np.isfinite(values) & (values > 0)])
    return {name: np.concatenate(chunks) if chunks else np.empty(0) for name, chunks in parts.items()}


def _histogram_curve(results: Results, cell: Cell, arm: str, levels: Floats) -> tuple[Floats, int] | None:
    """ITL quantiles from the pooled log histogram, log-linear inside a bin."""
    histograms = [h for detail in results.details(cell, arm) if (h := detail.get("itl_histogram")) and h.get("counts")]
    if not histograms:
        return None
    edges, counts = _pool(histograms)
    total = counts.sum()
    if total == 0:
        return None
    used = np.flatnonzero(counts)
    first, last = used[0], used[-1] + 1
    cumulative = np.concatenate([[0.0], np.cumsum(counts[first:last])]) / total
    return np.exp(np.interp(levels, cumulative, np.log(edges[first : last + 1]))), int(total)


def _pool(histograms: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats]:
    """Sum of histograms that are cut-outs of one grid, each trimmed to its own range."""
    edges = np.unique(np.round(np.concatenate([h["edges_ms"] for h in histograms]), 12))
    counts = np.zeros(len(edges) - 1)
    for histogram in histograms:
        first = np.searchsorted(edges, np.round(histogram["edges_ms"][:-1], 12))
        counts[first] += histogram["counts"]
    return edges, counts


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... inside a range; only powers of ten when it is wide."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 2000 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low * 0.98 <= step * 10.0**power <= high * 1.02]


def _frame(plot: go.Figure, low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    plot.update_layout(
        xaxis={
            "type": "log",
            "title": {"text": "ms, log scale"},
            "tickvals": ticks,
            "ticktext": [say_value(t) for t in ticks],
            "range": [math.log10(low) - 0.02, math.log10(high) + 0.02],
        },
        yaxis={"range": [0, 1.02], "tickformat": ".0%", "nticks": 6},
        margin={"l": 52, "r": 12, "t": 8, "b": 48},
    )


def _finding(results: Results, cell: Cell, medians: dict[str, dict[str, float]]) -> str:
    where = f"At {results.axis.say(cell.x)}" if results.axis else "Here"
    base = {metric: values.get(results.baseline) for metric, values in medians.items()}
    words = []
    for arm in results.challengers[:3]:
        parts = [
            f"{name} by {_shift(medians[metric][arm], before)}"
            for metric, name in (("tpot_ms", "TPOT"), ("ttft_ms", "TTFT"))
            if (before := base[metric]) and arm in medians[metric]
        ]
        words.append(f"{arm} changes the median {' and '.join(parts)}" if parts else f"{arm} has no requests")
    if not words:
        values = [f"{name} {number(base[m])} ms" for m, name in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT")) if base[m]]
        return f"{where}, the median is {' and '.join(values)}"
    return f"{where}, {'; '.join(words)}"


def _shift(after: float, before: float) -> str:
    share = after / before - 1
    return f"{'+' if share >= 0 else '−'}{percent(abs(share))}"
