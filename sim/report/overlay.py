"""The text and the JSON of measured load tests laid over simulated ones."""

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from sim.experiment.attribution import Explanation
from sim.experiment.overlay import METRICS, Figure, Overlay
from sim.metrics.statistics import Interval
from sim.report.overlay_advice import advice_lines, meaning
from sim.report.plain_text import WIDTH, bold, columns, labelled, number, printable
from sim.report.wording import METRICS as NAMES
from sim.report.wording import capital, metric_name

_OTHER_WORKLOAD = (
    "Not asked: the measured requests have other lengths than those of the scenario (see Notes), and no factor mends "
    "that. Give the scenario their lengths, or add --lengths measured."
)
#: Factors on what the cost model prices; beyond so many of its sigmas something else is more likely.
_PRICED, _WILD = ("target_time", "verify_time", "draft_time"), 4.0
#: Metrics of the long table; the JSON has all of them.
_SHOWN = ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "spec_decode_acceptance_length")


def overlay_text(found: Overlay, colour: bool = False) -> str:
    """The answer for people."""
    sections = {
        "": _head(found),
        "Measured against simulated (* outside of the model's band)": _figures(found),
        "Error of the simulation over the loads": _errors(found),
        "Speed-up over the baseline": _speedups(found),
        "What would explain the difference": _attribution(found),
        "What to do next": advice_lines(found),
        "Notes": [line for note in found.notes for line in labelled("  -", printable(note), 4)],
    }
    lines: list[str] = []
    for title, body in sections.items():
        if shown := list(body):
            lines += ["", bold(title, colour)] if title else []
            lines += shown
    return "\n".join(line.rstrip() for line in lines) + "\n"


def overlay_json(found: Overlay) -> str:
    """One JSON document with everything; relative errors are shares, band and intervals as in the text."""
    tests = [
        {
            "arm": test.arm,
            "source": test.point.source,
            "tool": test.point.tool,
            **test.point.load._asdict(),
            "completed": test.point.completed,
        }
        for test in found.tests
    ]
    document = {
        "schema_version": 1,
        "replicates": found.replicates,
        "simulations": found.num_runs,
        "tests": tests,
        "figures": [asdict(figure) | {"inside": figure.inside} for figure in found.figures],
        "errors": [{"arm": arm, "metric": metric, **stats._asdict()} for (arm, metric), stats in found.errors.items()],
        "other_workload": found.other_workload,
        "speedups": [asdict(each) | {"load": str(each.load)} for each in found.speedups],
        "attribution": None if found.attribution is None else asdict(found.attribution),
        "notes": list(found.notes),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _head(found: Overlay) -> Iterator[str]:
    arms = dict.fromkeys(test.arm for test in found.tests)
    yield from textwrap.wrap(
        f"{len(found.tests)} load tests of {', '.join(arms)}, simulated at the same loads with as many requests, "
        f"{found.replicates} replicates, and measured from the first request to the last token as clients do. "
        "The band is 95 %: the error of the model's step times as far as it matters there, and chance"
        + (", which one replicate cannot tell: it is not in the band." if found.replicates == 1 else "."),
        WIDTH,
    )


def _figures(found: Overlay) -> Iterator[str]:
    for metric in _SHOWN:
        mine = [figure for figure in found.figures if figure.metric == metric]
        if mine:
            rows = [("", "", "measured", "simulated", "error", "band", "")]
            yield f"  {_name(metric)}"
            yield from columns([*rows, *(_row(found, figure) for figure in mine)], 4, 2)


def _row(found: Overlay, figure: Figure) -> tuple[str, ...]:
    test = found.tests[figure.test]
    values = number(figure.measured), number(figure.simulated)
    outside = "" if figure.inside else "*"
    return test.arm, str(test.point.load), *values, _signed(figure.error), f"+-{100 * figure.band:.0f} %", outside


def _name(metric: str) -> str:
    name, unit, _ = NAMES.get(metric, ("acceptance length", "tokens", True))
    return f"{capital(name)} ({unit})"


def _signed(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:+.1f} %"  # no -0.0


def _errors(found: Overlay) -> Iterator[str]:
    rows = [("  arm", "metric", "MAPE", "mean signed", "worst", "loads")]
    ordered = sorted(found.errors.items(), key=lambda item: METRICS.index(item[0][1]))
    for arm in dict.fromkeys(test.arm for test in found.tests):
        mine = [(metric, stats) for (whose, metric), stats in ordered if whose == arm and "median" not in metric]
        for metric, stats in mine:
            values = f"{stats.mape:.1f} %", _signed(stats.bias / 100), f"{stats.worst:.1f} %", str(stats.points)
            name = "acceptance length" if metric.startswith("spec") else metric_name(metric)
            rows.append((f"  {arm}", name, *values))
    yield from columns(rows, 0, 2)


def _speedups(found: Overlay) -> Iterator[str]:
    if found.speedups:
        rows = [("  arm", "load", "of", "measured", "simulated", "error")]
        for each in found.speedups:
            ours = each.simulated
            error = _signed(ours.estimate / each.measured - 1.0)
            name = metric_name(each.metric)
            rows.append((f"  {each.arm}", str(each.load), name, f"{each.measured:.2f}", _interval(ours), error))
        yield from columns(rows, 0, 3)


def _interval(found: Interval) -> str:
    if found.low is None or found.high is None:
        return f"{found.estimate:.2f}"
    return f"{found.estimate:.2f} ({found.low:.2f}-{found.high:.2f})"


def _attribution(found: Overlay) -> Iterator[str]:
    answer = found.attribution
    if answer is None:
        return
    if found.other_workload:
        yield from labelled("", _OTHER_WORKLOAD, 2)
        return
    before = (
        f"Before: {_share(answer.before)} off (root mean square over TPOT, TTFT, ITL and acceptance length, as far as "
        "they were measured). One factor at a time, the best first:"
    )
    yield from labelled("", before, 2)
    rows: list[tuple[str, ...]] = [("  factor", "value (95 %)", "leaves", "chi2")]
    rows += [_explained(fit) for fit in answer.singles]
    rows += [_explained(answer.pair)] if answer.pair is not None else []
    yield from columns(rows, 0, 1)
    yield from labelled("", _verdict(found) + _doubt(found), 2)
    if answer.unseen:
        seen = sorted(answer.unseen.items(), key=lambda item: item[1])
        sizes = ", ".join(f"{name} {_percent(share)}" for name, share in seen)
        yield from labelled("", f"A single factor that is off by less than this would not show here: {sizes}.", 2)
    if answer.without_effect:
        names = ", ".join(answer.without_effect)
        yield from labelled("", f"These load tests say nothing about {names}.", 2)


def _percent(share: float) -> str:
    """Rounded up, so that what is said not to show does not."""
    return f"{math.ceil(100 * share)} %"


def _explained(fit: Explanation) -> tuple[str, ...]:
    names, values = " and ".join(fit.factors), ", ".join(map(_interval, fit.factors.values()))
    return f"  {names}", values + (" at its limit" if fit.at_limit else ""), _share(fit), number(fit.chi2)


def _share(fit: Explanation) -> str:
    return f"{100 * fit.rms:.1f} %"


def _verdict(found: Overlay) -> str:
    answer = found.attribution
    if answer is None or not answer.alike:
        return "No factor explains more than chance would: the inputs need no correction from these tests."
    best = answer.best
    if not answer.explained:
        return (
            f"No factor explains it: the best ({' and '.join(best.factors)}) leaves {_share(best)}. Check lengths, "
            "prefix caching, versions, K and the number of GPUs first."
        )
    if answer.pair_needed:
        alone = f"The better one alone leaves {_share(answer.singles[0])}."
        return f"Two things are off: {_meanings(list(best.factors))}. {alone}"
    if len(answer.alike) > 1:
        return f"Not distinguishable with these tests: {_meanings(answer.alike)}."
    return f"One factor explains it: {_meanings(answer.alike)}."


def _doubt(found: Overlay) -> str:
    """What to look at before believing a factor on times that the model's own error does not allow."""
    answer = found.attribution
    best = {} if answer is None or not answer.explained else answer.best.factors
    wild = [
        f"{name} {factor.estimate:.2f}"
        for name, factor in best.items()
        if name in _PRICED and abs(math.log(factor.estimate)) > _WILD * found.model_error
    ]
    if not wild:
        return ""
    return (
        f" That is far beyond the model's own error (one sigma {_percent(found.model_error)}): {', '.join(wild)}. "
        "Is it the same model, GPU, number of GPUs, dtype, engine and version?"
    )


def _meanings(names: Sequence[str]) -> str:
    return "; ".join(f"{name} ({meaning(name)})" for name in names)
