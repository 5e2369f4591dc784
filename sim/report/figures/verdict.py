"""Panel 1: the answer. One sentence, where each arm pays, break-even with intervals, and below it what to doubt."""

from collections.abc import Sequence

from sim.report import crossings as be
from sim.report.axis import Axis, Cell, Slice, say_value
from sim.report.figures.badges import badges
from sim.report.figures.doubts import warnings_of
from sim.report.panel import swatch
from sim.report.prefix_cache import prefix_cache_line
from sim.report.reader import Ratio, Results
from sim.report.style import arm_styles
from sim.report.wording import change, escape, factor, interval, listed, metric_name, number

#: columns of the table of a single operating point
_POINT_METRICS = ("output_throughput", "mean_tpot_ms", "mean_ttft_ms", "mean_e2el_ms", "request_goodput")
_MARKS = {"better": "▲", "worse": "▼", "not resolved": "≈"}


def verdict_html(results: Results) -> str:
    """The verdict section."""
    kicker = f"Does speculation pay? Judged by {metric_name(be.main_objective(results))}"
    parts = [f'<p class="kicker">{escape(kicker)}</p><h2>{escape(headline(results))}</h2>', badges(results)]
    for part in results.slices:
        parts.append(f"<h3>{escape(part.label)}</h3>" if part.label and len(results.slices) > 1 else "")
        if results.axis is None:
            parts.append(_point_grid(results, part))
        else:
            parts += [_grid(results, results.axis, part, objective) for objective in be.telling(results)[:3]]
            parts.append(_break_even_list(results, results.axis, part))
    if cached := prefix_cache_line(results):
        parts.append(f'<p class="note">{escape(cached)}.</p>')
    parts += [_k_schedule(results), _warnings(results)]
    return f'<section class="panel verdict" id="verdict">{"".join(parts)}</section>\n'


def _k_schedule(results: Results) -> str:
    """The table of `specsim tune-k`, ready to paste into vLLM; nothing in other folders."""
    document = results.extra("k_schedule.json")
    if document is None:
        return ""
    ranges = listed([f"K = {k} for {first} to {last}" for first, last, k in document["ranges"]])
    words = f"<h3>Draft tokens by requests in a step: {escape(ranges)}</h3>"
    if document["verdict"] == "do_not_load_a_drafter":
        words += "<p>Plain decoding is at least as good at every load: do not load a drafter.</p>"
    paste = document["emit"]["vllm"]["text"]
    return words + (f"<pre>{escape(paste)}</pre>" if paste else "")


def headline(results: Results) -> str:
    """The one sentence: up to where each arm pays, or how much it gains at the single operating point."""
    objective = be.main_objective(results)
    if not results.challengers:
        return f"One arm only ({results.baseline}): nothing to compare"
    axis = results.axis
    if axis is None:
        return _point_headline(results, objective)
    clauses = [
        (f"{arm} ({part.label})" if part.label else arm, be.clause(results, axis, part, arm, objective))
        for part in results.slices
        for arm in results.challengers
    ]
    more = f"; {len(clauses) - 4} more answers below" if len(clauses) > 4 else ""
    return be.together(clauses[:4]) + more + "."


def _point_headline(results: Results, objective: str) -> str:
    words = []
    for arm in results.challengers:
        ratio = results.ratio(results.done[0], arm, objective)
        if ratio is None:
            continue
        pays = {"better": "pays here", "worse": "does not pay here"}.get(
            ratio.verdict, "makes no measurable difference"
        )
        ci = interval(ratio.low, ratio.high, "x")
        words.append(f"{arm} {pays}: {change(ratio.speedup)}" + (f" ({results.ci} {ci}×)" if ci else ""))
    return "; ".join(words) or "Nothing to compare"


def _grid(results: Results, axis: Axis, part: Slice, objective: str) -> str:
    """Arms down, loads across: speed-up, coloured and marked by its verdict."""
    rows = [
        (arm, [_pay_cell(cell, results.ratio(cell, arm, objective)) for cell in part.cells])
        for arm in results.challengers
    ]
    title = f"Speed-up of {metric_name(objective)} over {results.baseline}"
    return _pays_table(results, title, [axis.short, *(say_value(cell.x) for cell in part.cells)], rows)


def _point_grid(results: Results, part: Slice) -> str:
    """Arms down, metrics across, for a single operating point."""
    cell = part.cells[0]
    known = [m for m in _POINT_METRICS if any(results.ratio(cell, arm, m) for arm in results.challengers)]
    rows = [(arm, [_pay_cell(cell, results.ratio(cell, arm, m)) for m in known]) for arm in results.challengers]
    return _pays_table(results, f"Speed-up over {results.baseline}", ["", *map(metric_name, known)], rows)


def _pays_table(results: Results, title: str, head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    if not rows:
        return ""
    styles = arm_styles(results)
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{swatch(styles[arm])} {escape(arm)}{_lossy_mark(results, arm)}</th>{"".join(cells)}</tr>'
        for arm, cells in rows
    )
    width = 9 + 4.1 * (len(head) - 1)
    return (
        f'<div class="scroll"><table class="pays" style="min-width:{width:.1f}rem"><caption>{escape(title)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _lossy_mark(results: Results, arm: str) -> str:
    rule, lossless = results.verification.get(arm, ("", True))
    return "" if lossless else f' <small title="{escape(rule)} changes the output">lossy</small>'


def _pay_cell(cell: Cell, ratio: Ratio | None) -> str:
    if ratio is None:
        reason = cell.reason or "no value"
        return f'<td class="missing" title="{escape(reason)}">failed</td>' if not cell.done else "<td>–</td>"
    ci = interval(ratio.low, ratio.high, "x")
    tip = f"{ratio.verdict}; CI {ci or 'unknown'}; {ratio.n} pairs"
    kind = {"better": "pays", "worse": "loses"}.get(ratio.verdict, "open")
    return f'<td class="{kind}" title="{escape(tip)}">{factor(ratio.speedup)}<i>{_MARKS[ratio.verdict]}</i></td>'


def _break_even_list(results: Results, axis: Axis, part: Slice) -> str:
    rows = [
        (arm, metric_name(objective), *_break_even_row(found, axis, results.baseline))
        for arm in results.challengers
        for objective in be.objectives(results)
        if (found := be.entry(results, arm, objective, part)) is not None
    ]
    if not rows:
        return ""
    names = ("Arm", "Objective", "Break-even", results.ci, "Between tested loads", "Cost model band", "Largest gain")
    used = [place for place in range(len(names)) if any(row[place] not in ("", "–") for row in rows)]
    head = "".join(f'<th scope="col">{names[place]}</th>' for place in used)
    body = "".join(f"<tr>{''.join(_text_cell(row[place]) for place in used)}</tr>" for row in rows)
    return (
        '<details class="break-even" open><summary>Break-even with its uncertainty</summary><div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _text_cell(text: str) -> str:
    return f'<td class="text">{escape(text or "–")}</td>'


def _break_even_row(found: be.Found, axis: Axis, baseline: str) -> tuple[str, str, str, str, str]:
    """Break-even, interval, bracket, cost model band and largest gain as text."""
    known = be.crossings(found)
    values = "; ".join(f"{number(c['value'])}{_sense(c)}" for c in known) or _short(found)
    caveats = be.caveats(found, baseline, axis)
    limits = f" ({'; '.join(caveats)})" if caveats else ""
    intervals = "; ".join(interval(c.get("ci_low"), c.get("ci_high")) or "–" for c in known)
    brackets = "; ".join("–".join(map(say_value, c.get("bracket") or ())) or "–" for c in known)
    bands = "; ".join(be.band(c) or "–" for c in known)
    return values + limits, intervals or "–", brackets or "–", bands or "–", be.gain(found, axis)


def _short(found: be.Found) -> str:
    tested: Sequence[float] = found.get("range_tested") or ()
    span = f" ({say_value(tested[0])} to {say_value(tested[-1])})" if len(tested) >= 2 else ""
    words = {"always": "always pays", "never": "never pays"}
    return words.get(str(found.get("status")), "not resolved") + span


def _sense(crossing: be.Found) -> str:
    return " (pays above)" if crossing.get("direction") == "loss_to_gain" else ""


def _warnings(results: Results) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in warnings_of(results))
    return f'<div class="warnings"><h3>Before you rely on this</h3><ul>{items}</ul></div>' if items else ""
