"""A tuned K table as text: the table, what it gains at every simulated load, what to paste."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.experiment.k_check import TABLE
from sim.report.plain_text import bold, columns, labelled, printable, short
from sim.report.wording import metric_name

Json = Mapping[str, Any]

_VERDICTS = {
    "use_the_table": "Use the table",
    "do_not_load_a_drafter": "Do not load a drafter: plain decoding is at least as good at every load",
    "not_resolved": "Not resolved: no load at which the table is clearly better than plain decoding; add replicates",
}


def tuned_text(document: Json, emit: str, colour: bool) -> str:
    """The whole answer.

    Args:
        document: the content of `k_schedule.json`.
        emit: engine whose settings are printed.
        colour: bold headings.
    """
    lines = [bold(_VERDICTS[document["verdict"]], colour), "", *_table_lines(document), ""]
    lines += [*_context_lines(document), *_simulated_lines(document), *_emitted_lines(document, emit, colour)]
    return "\n".join(line.rstrip() for line in lines)


def _table_lines(document: Json) -> Iterator[str]:
    yield (
        f"K of {printable(document['arm'])} ({document['method']}) by requests in a step, at "
        f"{document['context_tokens']:,} tokens of context:"
    )
    rows = {row["batch"]: row["speedup"] for row in document["closed_form"]["speedup"]}
    for first, last, k in document["ranges"]:
        ends = [rows[end] for end in (first, min(last, document["largest_batch"])) if end in rows]
        gain = f"   closed form {_span(ends)} of plain decoding" if ends else ""
        yield f"  {f'{first}-{last}':>11}  K = {k}{gain}"
    if document["closed_form"]["ranges"] != document["ranges"]:
        found = ", ".join(f"{first}-{last}: {k}" for first, last, k in document["closed_form"]["ranges"])
        yield from labelled("", f"closed form alone, batches that fit: {found}", 2)
    cost = document["closed_form"]["k0_cost"]
    if cost is not None:
        text = (
            f"K = 0 is not plain decoding: a loaded drafter runs its first pass in every step, which costs "
            f"{_percent(cost['least'])} to {_percent(cost['most'])} of plain decoding's rate"
        )
        yield from labelled("", text, 2)
    for note in document["notes"]:
        yield from labelled("", note, 2)


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}x" if high - low < 0.005 else f"{low:.2f}x to {high:.2f}x"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _context_lines(document: Json) -> Iterator[str]:
    rows = document.get("by_context")
    if not rows:
        return
    yield "By context (closed form; no released engine takes such a table):"
    for row in rows:
        ranges = ", ".join(f"{first}-{last}: {k}" for first, last, k in row["ranges"])
        yield from labelled(f"  from {row['first_context']:,}", ranges, 16)
    yield ""


def _simulated_lines(document: Json) -> Iterator[str]:
    simulated = document["simulated"]
    if simulated is None:
        return
    level = f"{100 * simulated['confidence']:g} %"
    yield (
        f"Simulated in closed loop: {metric_name(document['objective'])} against plain decoding, "
        f"{simulated['replicates']} replicates, {level} intervals"
    )
    arms = [TABLE, *(arm for arm in simulated["over_all"] if arm != TABLE)]
    rows = [["concurrency", "table / plain", *(f"{short(arm, 12)} / table" for arm in arms[1:])]]
    for row in simulated["loads"]:
        cells = [_change(row["arms"][arm]["over_table"]) for arm in arms[1:]]
        rows.append([str(row["concurrency"]), _gain(row["arms"][TABLE]["speedup"]), *cells])
    rows.append(["regret", *(_regret(simulated["over_all"][arm]["regret"]) for arm in arms)])
    yield from columns(rows, 2)
    yield from labelled(
        "", "regret: share lost against an oracle that knows what will be accepted, mean over the loads", 2
    )
    yield ""


def _gain(one: Json | None) -> str:
    """`1.62 +-0.05`."""
    return "-" if one is None else f"{one['estimate']:.2f}{_half(one, 2)}"


def _change(one: Json | None) -> str:
    """`-1.2 % +-0.3`: a ratio to the table as a difference."""
    return "-" if one is None else f"{round(100 * (one['estimate'] - 1), 1) + 0.0:+.1f} %{_half(one, 1, 100.0)}"


def _regret(one: Json | None) -> str:
    return "-" if one is None else f"{100 * one['estimate']:.1f} %{_half(one, 1, 100.0)}"


def _half(one: Json, digits: int, scale: float = 1.0) -> str:
    """Half the width of the interval, as +-."""
    if one["ci_low"] is None:
        return ""
    return f" +-{scale * (one['ci_high'] - one['ci_low']) / 2:.{digits}f}"


def _emitted_lines(document: Json, emit: str, colour: bool) -> Iterator[str]:
    found = document["emit"][emit]
    yield bold(f"{emit} (from version {found['version']})", colour)
    if document["verdict"] == "do_not_load_a_drafter" and found["text"]:
        yield "# for a server whose drafter is loaded all the same"
    if found["text"]:
        yield from found["text"].splitlines()
    for note in found["notes"]:
        yield from labelled("#", note, 2)
