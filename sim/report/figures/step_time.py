"""Panel 7: where the step time goes, as shares per load and arm."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.report.axis import Cell, Slice, say_value
from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import PARTS, figure
from sim.report.wording import percent, plain

_DEFINITION = (
    "Seconds of engine steps by part, summed over all steps and replicates, as shares of their total. Drafting is "
    "all work of the drafter, its share of prompts included. Linear layers hold the projections and experts; "
    "attention reads the KV cache once per pass however many drafts are verified; the LM head runs on every verified "
    "row. Host is CPU time that the GPU waits for."
)
Shares = Mapping[str, float]


def panel(results: Results) -> Panel | None:
    """One stack of bars per arm along the sweep, or one bar per arm; None when no run left its breakdown."""
    views = [view for part in results.slices if (view := _view(results, part))]
    if not views:
        return None
    reading = "Each bar is one load; its parts add up to 100 % of the step time."
    key = [PARTS[name] for name in _used(results)]
    return Panel("steps", "Where the step time goes", views, reading, _DEFINITION, "Where", key_colors=key)


def _view(results: Results, part: Slice) -> View | None:
    table = {arm: {cell: _shares(results, cell, arm) for cell in part.cells} for arm in results.arms}
    known = [shares for cells in table.values() for shares in cells.values() if shares]
    if not known:
        return None
    used = _used(results)
    if results.axis is None:
        bars = {plain(arm): cells[part.cells[0]] for arm, cells in table.items()}
        charts = [Chart(_stack(bars, used, ""))]
    else:
        charts = [
            Chart(_stack({say_value(c.x): s for c, s in cells.items()}, used, results.axis.label), plain(arm))
            for arm, cells in table.items()
        ]
    rows: list[list[Entry]] = [
        [cell.x if cell.x is not None else "", arm, *(shares.get(name) if shares else None for name in used)]
        for arm, cells in table.items()
        for cell, shares in cells.items()
    ]
    head = [results.axis.short if results.axis else "", "arm", *(PARTS[name][0] for name in used)]
    return View(part.label, _finding(results, table), charts, Table(head, rows))


def _used(results: Results) -> list[str]:
    """Parts that take any time anywhere."""
    known = [s for cell in results.done for arm in results.arms if (s := _shares(results, cell, arm))]
    return [name for name in PARTS if any(shares[name] > 1e-4 for shares in known)]


def _shares(results: Results, cell: Cell, arm: str) -> Shares | None:
    """Shares of the step time, all replicates together."""
    seconds = dict.fromkeys(PARTS, 0.0)
    for detail in results.details(cell, arm):
        for name, value in step_seconds(detail).items():
            seconds[name] += value
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()} if total > 0 else None


def step_seconds(detail: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by part from `result.json`."""
    found = detail.get("step_time_s") or {}
    return {name: float(found.get(name) or 0.0) for name in PARTS}


def _stack(bars: Mapping[str, Shares | None], used: Sequence[str], title: str) -> Any:
    plot = figure(340)
    labels = list(bars)
    for name in used:
        words, color, _ = PARTS[name]
        plot.add_bar(
            x=labels, y=[shares.get(name) if shares else None for shares in bars.values()], name=words,
            marker={"color": color}, hovertemplate=f"{words}<br>%{{x}}: %{{y:.1%}} of the step time<extra></extra>",
        )  # fmt: skip
    plot.update_layout(
        barmode="stack", bargap=0.18, xaxis={"type": "category", "title": {"text": title}},
        yaxis={"range": [0, 1], "tickformat": ".0%", "nticks": 6}, margin={"l": 48, "r": 12, "t": 8, "b": 48},
    )  # fmt: skip
    return plot


def _finding(results: Results, table: Mapping[str, Mapping[Cell, Shares | None]]) -> str:
    words = []
    for arm in results.challengers[:3]:
        known = [(cell, shares) for cell, shares in table[arm].items() if shares]
        if known:
            low, high = known[0][1]["draft"], known[-1][1]["draft"]
            span = percent(low) if len(known) == 1 else f"{percent(low)} to {percent(high)}"
            words.append(f"{span} of {arm}'s step time")
    if words:
        return f"Drafting takes {', '.join(words)}" + (" from the lowest to the highest load" if results.axis else "")
    shares = next(s for s in table[results.baseline].values() if s)
    largest = max(shares, key=shares.__getitem__)
    return f"{PARTS[largest][0].capitalize()} take the largest part of a step ({percent(shares[largest])})"
