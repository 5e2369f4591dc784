"""The one-screen summary that ends a run: plain aligned text, at most 100 columns, ASCII but for names."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.report import crossings as be
from sim.report.axis import Axis, Cell, Slice, say_value
from sim.report.figures.badges import cost_profiles
from sim.report.figures.doubts import warnings_of
from sim.report.figures.provenance import subtitle
from sim.report.plain_text import verified
from sim.report.prefix_cache import prefix_cache_line
from sim.report.reader import Ratio, Results, load_results
from sim.report.regret import regret_lines
from sim.report.wording import clean, metric_name, number, percent

WIDTH = 100
#: arms beside each other in one table
_ARMS_PER_TABLE = 2
_COLORS = {"better": "\x1b[32m", "worse": "\x1b[31m", "bold": "\x1b[1m", "dim": "\x1b[2m"}
#: rows of the table of a single operating point
_POINT_ROWS = {
    "output_throughput": "Output throughput (tok/s)",
    "tok_s_user_median": "Per user, median (tok/s)",
    "median_ttft_ms": "TTFT median (ms)",
    "p99_ttft_ms": "TTFT p99 (ms)",
    "median_tpot_ms": "TPOT median (ms)",
    "p99_tpot_ms": "TPOT p99 (ms)",
    "mean_e2el_ms": "E2E latency mean (ms)",
    "request_goodput": "Goodput (req/s)",
}


def summary_text(run_dir: Path, colour: bool = False) -> str:
    """The summary of a results folder.

    Args:
        run_dir: a results folder.
        colour: whether to use ANSI colours.

    Raises:
        ResultsError: the folder is unreadable or unfinished.
    """
    results = load_results(Path(run_dir))
    paint = _Paint(colour)
    lines = [*_head(results, paint), ""]
    for part in results.slices:
        in_step = [cell.others for cell in part.cells if cell.others] if not part.label else []
        if in_step:
            lines += [*wrapped(_ascii(f"varied in step with the loads below: {'; '.join(in_step)}"), ""), ""]
        if len(results.slices) > 1:
            lines.append(paint(clean(part.label), "bold"))
        lines += _sweep(results, results.axis, part, paint) if results.axis else _point(results, part.cells[0], paint)
        if results.axis:
            lines += break_even_lines(results, results.axis, part)
    lines += [*_regret(results), *_closed_form(results), *_acceptance(results)]
    lines += [*_verification(results), *_notes(results)]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


class _Paint:
    """Adds ANSI colour when it is wanted; lengths must be settled before."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, kind: str) -> str:
        return f"{_COLORS[kind]}{text}\x1b[0m" if self.colour and kind in _COLORS else text


def _head(results: Results, paint: _Paint) -> Iterator[str]:
    yield f"{paint(_fit(results.name, 40), 'bold')}"
    yield from wrapped(_ascii(subtitle(results)), "")
    for profile in cost_profiles(results):
        error = float(str(profile.get("relative_error") or 0))
        words = "exact by definition" if error == 0 else f"step times +-{100 * error:.0f} % (one sigma)"
        yield f"cost profile {clean(profile.get('profile'))}: {words}"


def _groups(results: Results) -> list[Sequence[str]]:
    arms = results.challengers
    return [arms[i : i + _ARMS_PER_TABLE] for i in range(0, len(arms), _ARMS_PER_TABLE)] or [()]


def _sweep(results: Results, axis: Axis, part: Slice, paint: _Paint) -> Iterator[str]:
    """A row per load: throughput of the baseline, speed-up of each arm, TPOT of all."""
    title = f"speed-up of {metric_name(be.main_objective(results)).removeprefix('output ')} ({results.ci})"
    for group in _groups(results):
        wide = 18 if len(group) > 1 else 36  # room for the title, which says what the speed-up is of
        names = [_fit(arm, wide).rjust(wide) for arm in group]
        times = [_fit(arm, 9).rjust(10) for arm in (results.baseline, *group)]
        titles = _ruled((wide + 1) * len(group), title) + _ruled(10 * len(times), "mean TPOT (ms)")
        yield f"{'':>13}{'tok/s':>12}{titles}"
        base = _fit(results.baseline, 11)
        yield paint(f"{_fit(axis.short, 12):<13}{base:>12}{''.join(f' {n}' for n in names)}{''.join(times)}", "dim")
        for cell in part.cells:
            yield _sweep_row(results, cell, group, wide, paint)
        yield ""


def _ruled(width: int, title: str) -> str:
    """The title above columns of this width, as much of it as fits."""
    shorter = (title, re.sub(r" of .* \(", " (", title), title.split(" of ")[0])
    shown = next((words for words in shorter if len(words) < width), "")
    return f" {shown:>{width - 1}}" if width else ""


def _sweep_row(results: Results, cell: Cell, group: Sequence[str], wide: int, paint: _Paint) -> str:
    head = f"{_ascii(say_value(cell.x)):<13}"
    if not cell.done:
        return _fit(f"{head} failed: {cell.reason}", WIDTH)
    ratios = [results.ratio(cell, arm, be.main_objective(results)) for arm in group]
    gains = "".join(" " + _gain(ratio, wide, paint) for ratio in ratios)
    times = "".join(f"{_level(results, cell, arm, 'mean_tpot_ms'):>10}" for arm in (results.baseline, *group))
    flag = " saturated" if any(results.saturated(cell, arm) for arm in (results.baseline, *group)) else ""
    return f"{head}{_level(results, cell, results.baseline, 'output_throughput'):>12}{gains}{times}{flag}"


def _gain(ratio: Ratio | None, width: int, paint: _Paint) -> str:
    """`1.42 (1.38-1.46) +`, with + for better and - for worse beyond chance."""
    if ratio is None:
        return "-".rjust(width)
    ci = f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.low is not None and ratio.high is not None else ""
    mark = {"better": "+", "worse": "-"}.get(ratio.verdict, "~")
    return paint(f"{ratio.speedup:.2f}{ci} {mark}".rjust(width), ratio.verdict)


def _level(results: Results, cell: Cell, arm: str, metric: str) -> str:
    level = results.level(cell, arm, metric)
    return _ascii(number(level.mean, 4 if level.mean >= 1000 else 3)) if level else "-"


def _point(results: Results, cell: Cell, paint: _Paint) -> Iterator[str]:
    """A row per metric: baseline, then each arm with its speed-up."""
    for group in _groups(results):
        arms = "".join(f"{_fit(arm, 11):>12}{f'speed-up ({results.ci})':>20}" for arm in group)
        yield paint(f"{'':<26}{_fit(results.baseline, 9):>10}{arms}", "dim")
        for metric, label in _POINT_ROWS.items():
            row = f"{label:<26}{_level(results, cell, results.baseline, metric):>10}"
            for arm in group:
                gain = _gain(results.ratio(cell, arm, metric), 19, paint)
                row += f"{_level(results, cell, arm, metric):>12} {gain}"
            if any(results.level(cell, arm, metric) for arm in (results.baseline, *group)):
                yield row
        yield "Speed-up above 1 is better for rates and times alike."


def break_even_lines(results: Results, axis: Axis, part: Slice, margin: str = "") -> Iterator[str]:
    """What every arm does by every objective along the axis: a heading per objective, a clause per arm."""
    for objective in be.objectives(results):
        yield f"{margin}Break-even, {metric_name(objective)}"
        for arm in results.challengers:
            found = be.entry(results, arm, objective, part)
            if found is not None:
                yield from wrapped(_ascii(_clause(results, axis, part, arm, objective, found)), f"{margin}  ")


def _clause(results: Results, axis: Axis, part: Slice, arm: str, objective: str, found: be.Found) -> str:
    points = "; ".join(be.precise(crossing, results.ci) for crossing in be.crossings(found))
    best = be.gain(found, axis)
    detail = f": {points}" if points else ""
    clauses = [*be.caveats(found, clean(results.baseline), axis), *([f"largest gain {best}"] if best else [])]
    return "; ".join([f"{clean(arm)} {be.clause(results, axis, part, arm, objective)}{detail}", *clauses])


def _acceptance(results: Results) -> Iterator[str]:
    """Mean over everything that was run: it hardly depends on the load."""
    parts = []
    for arm in results.challengers:
        verified, all_steps = (
            _mean_level(results, arm, metric) for metric in ("spec_decode_acceptance_length", "tokens_per_step")
        )
        if verified and all_steps:
            often = all_steps < 0.99 * verified  # n-gram, K tables, opted-out requests: many steps verify nothing
            parts.append(f"{clean(arm)} {verified:.2f}" + (f" ({all_steps:.2f} over all steps)" if often else ""))
    if parts:
        yield from wrapped("Tokens per verify step, bonus included: " + ", ".join(parts), "")
    use = [level.mean for c in results.done for a in results.arms if (level := results.level(c, a, "kv_usage_p99"))]
    lost = [level.mean for c in results.done for a in results.arms if (level := results.level(c, a, "preemptions"))]
    if use:
        yield _ascii(f"KV use p99 up to {percent(max(use))}; preemptions per run up to {number(max(lost or [0]))}")
    if cached := prefix_cache_line(results):
        yield from wrapped(_ascii(cached), "")


def _verification(results: Results) -> Iterator[str]:
    """Which rule verifies whose drafts, arms with the same rule together."""
    groups: dict[str, list[str]] = {}
    for arm, (rule, lossless) in results.verification.items():
        groups.setdefault(verified(clean(rule), lossless), []).append(clean(arm))
    if groups:
        yield from wrapped(
            "Verified by " + "; ".join(f"{rule}: {', '.join(arms)}" for rule, arms in groups.items()), ""
        )


def _mean_level(results: Results, arm: str, metric: str) -> float:
    levels = [level.mean for cell in results.done if (level := results.level(cell, arm, metric))]
    return sum(levels) / len(levels) if levels else 0.0


def _regret(results: Results) -> Iterator[str]:
    lines = [_ascii(line) for line in regret_lines(results)]
    yield from lines if len(lines) > 1 else (part for line in lines for part in wrapped(line, ""))


def _closed_form(results: Results) -> Iterator[str]:
    """What the arithmetic says without prefill and queue, to hold the simulation against."""
    text = closed_form_text(results.break_even.get("analytic") or {})
    if text:
        yield from wrapped(f"Closed form, decode only: {text}", "")


def closed_form_text(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The closed forms of all arms that have one, in one line; "" when none has."""
    parts = []
    for arm, curve in documents.items():
        if not curve["batch"]:
            continue
        turns = [
            f"{'stops' if turn['direction'] == 'gain_to_loss' else 'starts'} paying at batch {turn['value']:.0f}"
            for turn in curve["crossings"]
        ]
        pays = "pays at every batch" if curve["status"] == "always" else "never pays"
        full = ", where the KV pool is full" if curve.get("capacity_reached_first") else ""
        text = ", ".join(turns) or f"{pays} up to {curve['batch'][-1]}{full}"
        parts.append(f"{clean(arm)} {curve['speedup'][0]:.2f}x at batch 1, {text}")
    return "; ".join(parts)


def _notes(results: Results) -> Iterator[str]:
    for note in warnings_of(results):
        yield from wrapped(f"note: {_ascii(clean(note))}", "")


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most `WIDTH` columns; the first one begins at the indent, the others two columns further."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [""]


def _fit(text: str, width: int) -> str:
    shown = clean(text)
    return shown if len(shown) <= width else shown[: width - 1] + "~"


def _ascii(text: str) -> str:
    for fancy, simple in {"\u202f": " ", "–": "-", "×": "x", "·": "|", "−": "-"}.items():
        text = text.replace(fancy, simple)
    return text
