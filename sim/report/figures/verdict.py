"""Panel 1: the answer. One sentence, a table of where each arm pays, break-even with intervals, and what to doubt."""

from collections.abc import Mapping, Sequence

from sim.report import crossings as be
from sim.report.axis import Axis, Cell, Slice, say_value
from sim.report.figures.badges import badges, cost_profiles
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


def warnings_of(results: Results) -> list[str]:
    """Everything a reader should doubt: notes of the run, unresolved or failed loads, saturation, capacity."""
    found = [str(note) for key in ("warnings", "notes") for note in results.manifest.get(key) or ()]
    found += [
        f"{'Some runs failed' if cell.done else 'No result'} at {_where(results, cell)}: {cell.reason}"
        for cell in results.cells
        if cell.reason
    ]
    found += [
        f"{arm}: {rule} is not lossless, so the output is not the target's; a gain is bought with other text"
        for arm, (rule, lossless) in results.verification.items()
        if not lossless
    ]
    found += _what_if(results) + _whole_runs(results) + _rejections(results)
    found += _saturation(results)
    found += _thin_margins(results)
    found += [f"{listed(arms)}: {clause}" for clause, arms in _doubts(results).items()]
    return list(dict.fromkeys(found))


def _what_if(results: Results) -> list[str]:
    """Factors that make these results a sensitivity study."""
    stated = results.scenario.get("what_if")
    factors = stated.items() if isinstance(stated, Mapping) else ()
    changed = [f"{key} x {number(value)}" for key, value in factors if value != 1]
    return [f"What if: {listed(changed)}; these are not the results of the scenario as it stands"] * bool(changed)


def _whole_runs(results: Results) -> list[str]:
    """Loads whose runs were too short for a window: start and drain are in their figures."""
    if "steady" not in results.summary:
        return []
    short = results.summary[~results.summary["steady"].astype(bool)]
    places = [_where(results, cell) for cell in results.done if (short["cell_id"] == cell.cell_id).any()]
    if not places:
        return []
    return [f"Too few requests at {listed(places[:4])}: the whole run is measured, start and drain included"]


def _rejections(results: Results) -> list[str]:
    """Requests that could never fit: their tokens are missing from every rate."""
    lost = {
        arm: max((level.mean for c in results.done if (level := results.level(c, arm, "rejected"))), default=0.0)
        for arm in results.arms
    }
    return [
        f"{arm}: up to {number(count)} requests per run were rejected, for they can never fit"
        for arm, count in lost.items()
        if count
    ]


def _saturation(results: Results) -> list[str]:
    groups: dict[str, list[str]] = {}
    for arm in results.arms:
        if full := [_where(results, cell) for cell in results.done if results.saturated(cell, arm)]:
            groups.setdefault(listed(full[:4]), []).append(arm)
    return [
        f"Saturated at {loads}: {listed(arms)}; the queue grows without bound there" for loads, arms in groups.items()
    ]


def _thin_margins(results: Results) -> list[str]:
    """Loads where the gain or loss is resolved statistically but smaller than the error of the cost profile."""
    error = max((float(str(profile.get("relative_error") or 0)) for profile in cost_profiles(results)), default=0.0)
    objective, thin = be.main_objective(results), []
    for arm in results.challengers:
        close = [c for c in results.done if (r := results.ratio(c, arm, objective)) and _is_thin(r, error)]
        if close:
            places = listed([say_value(cell.x) if results.axis else "this point" for cell in close])
            thin.append(f"{arm} at {results.axis.short + ' ' if results.axis else ''}{places}")
    if not thin:
        return []
    return [
        f"Smaller than the error of the cost profile ({100 * error:.0f} %), so it may turn around: {'; '.join(thin)}"
    ]


def _where(results: Results, cell: Cell) -> str:
    return results.axis.say(cell.x) if results.axis else cell.others or "this load"


def _is_thin(ratio: Ratio, error: float) -> bool:
    return ratio.verdict != "not resolved" and abs(ratio.speedup - 1) < error


def _capacity(results: Results, entry: be.Found) -> str:
    full = entry.get("capacity_reached_from")
    where = f" from {results.axis.say(full)} on" if results.axis and full is not None else " before it breaks even"
    return f"the KV cache is full{where}, so more load only queues or preempts"


def _unresolved(results: Results, entry: be.Found) -> str:
    loads = [say_value(load) for load in entry.get("unresolved_at") or ()]
    where = f" at {results.axis.short} {listed(loads)}" if loads and results.axis else ""
    return f"the interval includes 1{where}; run more replicates"


def _doubts(results: Results) -> dict[str, list[str]]:
    """Doubt -> arms (and slices) that it concerns."""
    groups: dict[str, list[str]] = {}
    for part in results.slices:
        where = f" ({part.label})" if part.label and len(results.slices) > 1 else ""
        for arm in results.challengers:
            for clause in _arm_doubts(results, part, arm):
                groups.setdefault(clause, []).append(arm + where)
    return groups


def _arm_doubts(results: Results, part: Slice, arm: str) -> list[str]:
    clauses = []
    for objective in be.objectives(results):
        entry = be.entry(results, arm, objective, part) or {}
        if entry.get("capacity_reached_first"):
            clauses.append(_capacity(results, entry))
        if entry.get("status") == "indeterminate":
            reason = entry.get("reason") or _unresolved(results, entry)
            clauses.append(f"break-even of {metric_name(objective)} is not resolved: {reason}")
    runs = {ratio.n for cell in part.cells if (ratio := results.ratio(cell, arm, be.main_objective(results)))}
    clauses = list(dict.fromkeys(clauses))
    return [*clauses, "one replicate only, so there are no intervals"] if runs and max(runs) < 2 else clauses


def _warnings(results: Results) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in warnings_of(results))
    return f'<div class="warnings"><h3>Before you rely on this</h3><ul>{items}</ul></div>' if items else ""
