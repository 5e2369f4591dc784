"""Panel: what each input does to the speed-up over its plausible range, and where it would flip the decision."""

from typing import Any

from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.sensitivity import flip_text, headline, tornado_rows
from sim.report.style import figure
from sim.report.wording import metric_name, plain

_DEFINITION = (
    "Every input is multiplied by a factor, one at a time; 1 is the scenario as stated. Bars reach from the speed-up "
    "at the low end of the input's plausible range to that at its high end, paired over replicates. A flip point is "
    "the factor at which the speed-up crosses the gain that counts as paying; its interval holds the factors at which "
    "the speed-up cannot be told from that gain."
)
_LOW, _HIGH = "#56789a", "#c2703d"
_ENDS = ("low", "input at the low end of its range", _LOW), ("high", "input at the high end of its range", _HIGH)


def panel(results: Results) -> Panel | None:
    """One bar per input, the widest on top; None for folders without `sensitivity.json`."""
    document = results.extra("sensitivity.json")
    if document is None:
        return None
    rows = tornado_rows(document)
    base = document["speedup"]["estimate"] if document["speedup"] else 1.0
    plot = figure(110 + 34 * len(rows))
    for index, (_, words, color) in enumerate(_ENDS):
        ends = [row["speedup"][index]["estimate"] if row["speedup"][index] else base for row in rows]
        plot.add_bar(
            y=[row["input"] for row in rows], x=[end - base for end in ends], base=base, orientation="h", name=words,
            marker={"color": color},
            customdata=[[end, row["range"][index]] for end, row in zip(ends, rows, strict=True)],
            hovertemplate="%{y} × %{customdata[1]:.2f}: speed-up %{customdata[0]:.3f}<extra></extra>",
        )  # fmt: skip
    plot.add_vline(x=document["min_gain"], line={"dash": "dash", "width": 1})
    title = f"Speed-up of {metric_name(document['objective'])} over {plain(document['baseline'])}"
    plot.update_layout(
        barmode="overlay", bargap=0.35, xaxis={"title": {"text": title}}, yaxis={"autorange": "reversed"},
        margin={"l": 110, "r": 16, "t": 8, "b": 48},
    )  # fmt: skip
    head = ["input", "range low", "range high", "speed-up at low", "speed-up at high", "decision", "range from"]
    view = View("", headline(document), [Chart(plot)], Table(head, [_entries(row) for row in rows]))
    reading = "Longer bars matter more; a bar across the dashed line can turn the decision."
    colors = [(words, color, color) for _, words, color in _ENDS]
    return Panel("tornado", "How wrong may the inputs be?", [view], reading, _DEFINITION, key_colors=colors)


def _entries(row: dict[str, Any]) -> list[Entry]:
    ends = [None if end is None else float(end["estimate"]) for end in row["speedup"]]
    return [row["input"], *row["range"], *ends, flip_text(row), row["range_source"]]
