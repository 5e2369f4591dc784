"""A sensitivity study as text: a row per input, the most telling first, and where each would flip the decision."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from sim.report.plain_text import WIDTH, bold, columns, labelled, number, printable
from sim.report.wording import metric_name

Json = Mapping[str, Any]

_DECISIONS = {
    "pays": "pays",
    "does_not_pay": "does not pay",
    "not_resolved": "is not resolved (the interval includes no difference; add replicates)",
}


def sensitivity_text(document: Json, colour: bool) -> str:
    """The whole answer."""
    lines = [*(bold(line, colour) for line in textwrap.wrap(headline(document), WIDTH)), "", *_rows(document), ""]
    lines += [line for row in tornado_rows(document) for line in labelled("  " + row["input"], _where_from(row), 18)]
    if document["left_aside"]:
        lines += [f"At the operating point as stated; {', '.join(document['left_aside'])} is not varied."]
    return "\n".join(line.rstrip() for line in lines)


def headline(document: Json) -> str:
    """The decision as it stands, and whether a plausible error would turn it."""
    arm, name = printable(document["arm"]), metric_name(document["objective"])
    baseline = printable(document["baseline"])
    start = f"{arm} {_DECISIONS[document['decision']]}: {name} {_ratio(document['speedup'])} times that of {baseline}"
    turned = [row["input"] for row in document["inputs"] if any(within_range(row, flip) for flip in row["flips"])]
    if not document["inputs"] or document["decision"] == "not_resolved":
        return start
    return f"{start}; " + (
        f"flips within the range of {', '.join(turned)}" if turned else "no input flips it within its range"
    )


def within_range(row: Json, flip: Json) -> bool:
    """Whether a flip lies in what is plausible."""
    low, high = row["range"]
    return bool(low <= flip["factor"] <= high)


def tornado_rows(document: Json) -> list[dict[str, Any]]:
    """The inputs, those that move the speed-up most first."""

    def swing(row: Json) -> float:
        ends = [end["estimate"] for end in row["speedup"] if end is not None]
        return max(ends) / min(ends) if len(ends) == 2 else 1.0

    return sorted(document["inputs"], key=swing, reverse=True)


def flip_text(row: Json) -> str:
    """`flips at 1.62 (1.58-1.66)`, or that it does not within the searched range."""
    if not row["flips"]:
        low, high = row["searched"]
        return f"does not flip within [{low:.3g}, {high:.3g}]"
    return "flips at " + " and ".join(_flip(flip) for flip in row["flips"])


def _flip(flip: Json) -> str:
    if flip["ci_low"] is None or flip["ci_high"] is None:
        return f"{number(flip['factor'])} (not resolved)"
    return f"{number(flip['factor'])} ({number(flip['ci_low'])}-{number(flip['ci_high'])})"


def _rows(document: Json) -> Iterator[str]:
    table = [["input", "factor", "speed-up at low", "at high", "decision"]]
    for row in tornado_rows(document):
        low, high = row["range"]
        table.append([row["input"], f"{low:.2f}-{high:.2f}", *map(_ratio, row["speedup"]), flip_text(row)])
    yield from columns(table, 2, 1)


def _ratio(interval: Json | None) -> str:
    if interval is None:
        return "-"
    if interval["ci_low"] is None:
        return f"{interval['estimate']:.2f}"
    return f"{interval['estimate']:.2f} ({interval['ci_low']:.2f}-{interval['ci_high']:.2f})"


def _where_from(row: Json) -> str:
    stated = "" if row["key"].startswith("what_if.") else f", stated {number(row['stated'])}"
    return f"{row['key']}{stated}; range: {row['range_source']}"
