"""Pictures of the page `speedup`: curves over the load, verification against plain steps, where the time goes."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sim.report.palette import MUTED
from sim.report.validation.canvas import (
    MEASURED,
    PREDICTED,
    SERIES,
    Picture,
    Sheet,
    end_labels,
    log_ticks,
    name_panel,
    thinned,
)
from sim.report.validation.panels import ratio_rows
from sim.validation.scores import SHARES, Score
from sim.validation.speedup import Speedups
from sim.validation.speedup_findings import Curve, curves
from sim.validation.speedup_report import speedup_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD = "Speed-up against {load}. Dots: measured, filled where scored. Lines: predicted, with the one-sigma band."
_ASIDE = re.compile(r" \([^)]*\)")


def speedup_pictures(suite: Speedups, shares: Sequence[Score]) -> Iterator[Picture]:
    """All of the page, by their names: `curves-served`, `curves-clones`, `steps`, `shares`, `groups`."""
    drawn = list(curves(suite.found))
    clones = _by_panel(one for one in drawn if one.case.drive == "clones")
    served = _by_panel(one for one in drawn if one.case.drive in ("closed", "open"))
    if clones:
        alt = "Speed-up over the batch of clones, measured and predicted, a panel per model, method and data set."
        yield Picture("speedup-clones", alt, _curves(clones, "batch"))
    if served:
        alt = "Speed-up over concurrency or request rate, measured and predicted, a panel per model, method and engine."
        yield Picture("speedup-served", alt, _curves(served, "concurrency, or the rate"))
    ratios = [score for score in suite.scores if score.quantity == "T_verify/T_plain"]
    if ratios:
        alt = "Time of a verify step in plain steps over the batch, measured and predicted, a panel per context length."
        yield Picture("speedup-steps", alt, _steps(suite, ratios))
    if shares:
        alt = "Shares of drafting, verification and overhead in a step, predicted beside measured, by method and batch."
        yield Picture("speedup-shares", alt, _shares(shares))
    groups = [(name, scores) for name, scores in speedup_groups(suite, ()) if scores and ": speed-up" in name]
    if groups:
        alt = "Predicted over measured speed-up of every row, by source."
        yield Picture("speedup-groups", alt, ratio_rows([(_short(name), scores) for name, scores in groups]))


def _short(name: str) -> str:
    """A group without what every row of the page says, in two lines."""
    source, _, rest = name.removesuffix(": speed-up").partition(": ")
    return f"{source.split(',')[0]}\n{_ASIDE.sub('', rest)}"


def _by_panel(found: Iterable[Curve]) -> list[list[Curve]]:
    """Curves that differ in K only share a panel; trees of other shapes too."""
    panels: dict[tuple[str, ...], list[Curve]] = {}
    for curve in found:
        panels.setdefault(curve.case.sweep, []).append(curve)
    return list(panels.values())


def _curves(panels: Sequence[Sequence[Curve]], load: str) -> str:
    sheet = Sheet(len(panels), 3, 2.15, title=_HEAD.format(load=load))
    for axes, group in zip(sheet.panels, panels, strict=True):
        row = group[0].case.row
        where = ", ".join((row.dataset, *(text.split(" (")[0] for text in (row.gpu, row.engine))))
        name_panel(axes, f"{row.target_model}, {row.method.split(' block ')[0]}", where)
        axes.axhline(1.0, color=MUTED, linewidth=0.9)
        for color, curve in zip(SERIES, group, strict=False):
            _curve(axes, curve, color if len(group) > 1 else None)
        loads = [point.load for curve in group for point in curve.points]
        log_ticks(axes, thinned(loads, 1.5))
        axes.set_ylim(bottom=min(0.9, axes.get_ylim()[0]))
        if len(group) > 1:
            ends = [(curve.points[-1].predicted, _k_name(curve)) for curve in group]
            end_labels(axes, [(*end, color) for end, color in zip(ends, SERIES, strict=False)])
        if group[0].case.drive == "open":
            axes.set_xlabel("requests/s")
    return sheet.svg()


def _k_name(curve: Curve) -> str:
    """`K = 3`, `tree of 60`."""
    return f"tree of {curve.case.num_drafts}" if curve.case.tree else f"K = {curve.case.num_drafts}"


def _curve(axes: "Axes", curve: Curve, own: str | None) -> None:
    """A line in its own colour, or in that of predictions where it is alone."""
    color, dots = own or PREDICTED, own or MEASURED
    loads = [point.load for point in curve.points]
    axes.plot(loads, [point.predicted for point in curve.points], color=color)
    banded = [point for point in curve.points if point.low is not None and point.high is not None]
    axes.fill_between([p.load for p in banded], [p.low or 0 for p in banded], [p.high or 0 for p in banded],
                      color=color, alpha=0.15, linewidth=0)  # fmt: skip
    for point in curve.points:
        axes.plot(point.load, point.measured, "o", markersize=4.2, markeredgecolor=dots,
                  markerfacecolor="white" if point.solved else dots)  # fmt: skip


def _steps(suite: Speedups, ratios: Sequence[Score]) -> str:
    """One panel per model, a colour per context; predictions at a single batch are a dash."""
    known = {score.name: score for score in ratios}
    panels: dict[str, dict[int, list[tuple[float, Score]]]] = {}
    for one in suite.found:
        if score := known.get(one.case.row.case_id):
            panel = panels.setdefault(one.case.row.target_model, {})
            panel.setdefault(one.case.lengths.prompt, []).append((one.case.load, score))
    title = (
        "Time of a verify step in plain steps, T_verify / T_plain, against the batch. Dots: measured. Lines: predicted."
    )
    sheet = Sheet(len(panels), 2, 2.9, title=title)
    for axes, (model, contexts) in zip(sheet.panels, sorted(panels.items()), strict=True):
        name_panel(axes, f"{model}, by context")
        ends = []
        for color, (context, points) in zip(SERIES, sorted(contexts.items()), strict=False):
            points.sort(key=lambda pair: pair[0])
            loads, predicted = [load for load, _ in points], [score.predicted for _, score in points]
            axes.plot(loads, predicted, "-" if len(loads) > 1 else "_", color=color, markersize=12)
            axes.plot(loads, [score.measured for _, score in points], "o", color=color, markersize=4.2)
            ends.append((predicted[-1], f"{context:,} tokens", color))
        log_ticks(axes, thinned([load for points in contexts.values() for load, _ in points], 1.5))
        end_labels(axes, ends)
    return sheet.svg()


def _shares(shares: Sequence[Score]) -> str:
    """Stacked bars in pairs: measured above predicted."""
    names = list(dict.fromkeys((score.group, score.name) for score in shares))
    values = {(score.group, score.name, score.quantity): score for score in shares}
    sheet = Sheet(
        1, 1, 0.6 + 0.3 * len(names), title="Shares of a step's time: upper bar measured, lower bar (paler) predicted."
    )
    axes = sheet.panels[0]
    for color, quantity in zip((SERIES[1], SERIES[0], MUTED), SHARES, strict=True):
        for row, (group, name) in enumerate(names):
            score = values[group, name, quantity]
            before = [values[group, name, each] for each in SHARES[: SHARES.index(quantity)]]
            for shift, value, left, alpha in (
                (-0.19, score.measured, sum(each.measured for each in before), 0.95),
                (0.19, score.predicted, sum(each.predicted for each in before), 0.55),
            ):
                axes.barh(row + shift, 100 * value, 0.34, 100 * left, color=color, alpha=alpha, linewidth=0)
        axes.text((5, 45, 99)[SHARES.index(quantity)], -0.75, quantity.removesuffix(" share"), color=color, fontsize=8,
                  ha=("left", "center", "right")[SHARES.index(quantity)])  # fmt: skip
    axes.set_yticks(range(len(names)), [name for _, name in names])
    axes.set_xlim(0, 103)
    axes.set_ylim(len(names) - 0.4, -1.1)
    axes.set_xlabel("per cent of a step (may not add up to 100: as published)")
    axes.grid(visible=False, axis="y")
    return sheet.svg()
