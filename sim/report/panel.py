"""A dashboard panel as data, and as HTML: finding, switch between views, charts, the table below each, definition."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from sim.report.style import ArmStyle
from sim.report.wording import capital, escape, number

Entry = str | float | None


@dataclass(frozen=True)
class Table:
    """What a chart shows, in full precision for the CSV and rounded for the reader. None is a gap."""

    head: Sequence[str]
    rows: Sequence[Sequence[Entry]]


@dataclass(frozen=True)
class Chart:
    """One plot; `caption` stands above it when a view has several.."""

    figure: go.Figure
    caption: str = ""


@dataclass(frozen=True)
class View:
    """One state of a panel.

    Attributes:
        label: on the switch, when there are several views.
        finding: what the data say, as the title.
        charts: plots side by side.
        table: the same as text.
        warnings: gaps and their reasons, saturated points.
    """

    label: str
    finding: str
    charts: Sequence[Chart]
    table: Table
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Panel:
    """One block of the page.

    Attributes:
        key: id in the page, a slug.
        kicker: what the panel is about, in a few words above the finding.
        views: at least one.
        reading: how to read the chart, one sentence.
        definition: how the numbers are defined.
        switch: what the views differ in, for screen readers.
        start: view shown first.
        legend: the arms drawn, in order; empty when colours do not stand for arms.
        key_colors: what colours stand for otherwise: (words, light colour, dark colour).
    """

    key: str
    kicker: str
    views: Sequence[View]
    reading: str
    definition: str
    switch: str = "Metric"
    start: int = 0
    legend: Sequence[tuple[str, ArmStyle]] = field(default=())
    key_colors: Sequence[tuple[str, str, str]] = field(default=())


def figures_of(panel: Panel) -> dict[str, go.Figure]:
    """Every figure of the panel under the name that its `<div>` carries."""
    return {
        f"{panel.key}-{index}-{place}": chart.figure
        for index, view in enumerate(panel.views)
        for place, chart in enumerate(view.charts)
    }


def panel_html(panel: Panel) -> str:
    """The panel as a `<section>`."""
    views = "".join(_view_html(panel, index, view) for index, view in enumerate(panel.views))
    bar = f'<div class="bar"><p class="kicker">{escape(panel.kicker)}</p>{_switch(panel)}</div>'
    words = f'<details class="definition"><summary>Definition</summary><p>{escape(panel.definition)}</p></details>'
    return f'<section class="panel" id="{panel.key}">{bar}{views}{words}</section>\n'


def _switch(panel: Panel) -> str:
    if len(panel.views) < 2:
        return ""
    if sum(len(view.label) for view in panel.views) <= 60 and len(panel.views) <= 5:
        return f'<div class="switch" role="group" aria-label="{escape(panel.switch)}">{_buttons(panel)}</div>'
    options = "".join(
        f'<option value="{index}"{" selected" if index == panel.start else ""}>{escape(view.label)}</option>'
        for index, view in enumerate(panel.views)
    )
    return f'<label class="switch">{escape(panel.switch)} <select>{options}</select></label>'


def _buttons(panel: Panel) -> str:
    return "".join(
        f'<button type="button" value="{index}" aria-pressed="{"true" if index == panel.start else "false"}">'
        f"{escape(view.label)}</button>"
        for index, view in enumerate(panel.views)
    )


def _view_html(panel: Panel, index: int, view: View) -> str:
    charts = "".join(_chart_html(f"{panel.key}-{index}-{i}", chart, view) for i, chart in enumerate(view.charts))
    shape = {1: "charts", 2: "charts many pairs", 4: "charts many pairs"}.get(len(view.charts), "charts many")
    notes = "".join(f"<li>{escape(note)}</li>" for note in view.warnings)
    return (
        f'<div class="view" data-start="{int(index == panel.start)}"><h2>{escape(capital(view.finding))}</h2>'
        f'<p class="reading">{escape(panel.reading)}</p>{_legend(panel.legend)}{_key(panel.key_colors)}'
        f'<div class="{shape}">{charts}</div>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + f"{table_html(view.table)}</div>"
    )


def _chart_html(name: str, chart: Chart, view: View) -> str:
    caption = f"<figcaption>{escape(chart.caption)}</figcaption>" if chart.caption else ""
    height = chart.figure.layout.height or 400
    label = escape(chart.caption or view.finding)
    return (
        f'<figure>{caption}<div class="plot" id="{name}" role="img" aria-label="{label}" style="min-height:{height}px">'
        "</div></figure>"
    )


def _legend(arms: Sequence[tuple[str, ArmStyle]]) -> str:
    chips = "".join(
        f'<li><button type="button" data-arm="{index}" aria-pressed="true" title="Show or hide">'
        f"{swatch(style)}<span>{escape(arm)}</span></button></li>"
        for index, (arm, style) in enumerate(arms)
    )
    return f'<ul class="legend">{chips}</ul>' if chips else ""


def _key(colors: Sequence[tuple[str, str, str]]) -> str:
    items = "".join(
        f'<li class="swatch" data-light="{light}" data-dark="{dark}" style="color:{light}"><i></i>'
        f"<span>{escape(words)}</span></li>"
        for words, light, dark in colors
    )
    return f'<ul class="key">{items}</ul>' if items else ""


def swatch(style: ArmStyle) -> str:
    """Line and marker of an arm as a small drawing."""
    dash = {"dash": "6 3", "dashdot": "6 2 1 2", "longdash": "9 3"}.get(style.dash, "none")
    shapes = {
        "circle": '<circle cx="15" cy="7" r="4.2"/>',
        "diamond": '<path d="M15 1.6 20.4 7 15 12.4 9.6 7Z"/>',
        "triangle-up": '<path d="M15 2 20.2 11.4H9.8Z"/>',
        "square": '<path d="M11 3h8v8h-8Z"/>',
        "cross": '<path d="M13 2h4v3h3v4h-3v3h-4V9h-3V5h3Z"/>',
    }
    shape = shapes.get(style.symbol, shapes["circle"])
    return (
        f'<svg class="swatch" data-light="{style.color}" data-dark="{style.dark}" style="color:{style.color}" '
        f'width="30" height="14" aria-hidden="true"><path d="M0 7H30" stroke="currentColor" stroke-width="2" '
        f'stroke-dasharray="{dash}"/><g fill="currentColor">{shape}</g></svg>'
    )


def table_html(table: Table) -> str:
    """The table inside `<details>`, with the button that copies it as CSV."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(f"<tr>{''.join(_cell(entry) for entry in row)}</tr>" for row in table.rows)
    return (
        '<details class="data"><summary>Data table</summary>'
        '<button type="button" class="copy">Copy data as CSV</button>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def _cell(entry: Entry) -> str:
    if entry is None or (isinstance(entry, float) and not math.isfinite(entry)):
        return "<td>–</td>"
    if isinstance(entry, str):
        return f'<td class="text">{escape(entry)}</td>'
    return f'<td data-v="{entry:.9g}">{number(float(entry), 4)}</td>'
