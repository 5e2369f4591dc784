"""Numbers, lists and findings in words, and user strings made safe for HTML and for plotly's pseudo-HTML."""

import html
import math
import re
from collections.abc import Sequence

from sim.report.axis import Axis, Cell

#: metric column -> (name in a sentence, unit, whether more is better)
METRICS: dict[str, tuple[str, str, bool]] = {
    "output_throughput": ("output throughput", "tokens/s", True),
    "total_token_throughput": ("total token throughput", "tokens/s", True),
    "request_throughput": ("request throughput", "requests/s", True),
    "request_goodput": ("goodput", "requests/s", True),
    "tok_s_user_median": ("speed per user", "tokens/s", True),
    "mean_tpot_ms": ("mean TPOT", "ms", False),
    "median_tpot_ms": ("median TPOT", "ms", False),
    "p99_tpot_ms": ("p99 TPOT", "ms", False),
    "mean_ttft_ms": ("mean TTFT", "ms", False),
    "median_ttft_ms": ("median TTFT", "ms", False),
    "p99_ttft_ms": ("p99 TTFT", "ms", False),
    "mean_itl_ms": ("mean ITL (per chunk)", "ms", False),
    "median_itl_ms": ("median ITL (per chunk)", "ms", False),
    "p99_itl_ms": ("p99 ITL (per chunk)", "ms", False),
    "mean_e2el_ms": ("mean E2E latency", "ms", False),
    "median_e2el_ms": ("median E2E latency", "ms", False),
    "p99_e2el_ms": ("p99 E2E latency", "ms", False),
    "usd_per_mtok_output": ("cost per million output tokens", "USD", False),
}

_TAG = re.compile(r"<[^<>]*>")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Text without control and direction-override characters (a terminal obeys some of them)."""
    return _CONTROL.sub(" ", str(text))


def plain(text: object) -> str:
    """A user string without tags, template marks and control characters: safe inside plotly."""
    stripped = clean(_TAG.sub("", str(text)))
    safe = stripped.replace("<", "‹").replace(">", "›").replace("&", "＆").replace("%{", "% {").replace("$", "＄")
    return safe.strip() or "(unnamed)"


def escape(text: object) -> str:
    """A string for HTML text and attributes."""
    return html.escape(clean(text), quote=True)


def metric_name(metric: str) -> str:
    """The metric as it stands in a sentence."""
    return METRICS.get(metric, (metric.replace("_", " "), "", True))[0]


def metric_unit(metric: str) -> str:
    """Its unit."""
    return METRICS.get(metric, ("", "ms" if metric.endswith("_ms") else "", True))[1]


def capital(sentence: str) -> str:
    """The sentence with a capital first letter, unless it starts with a name (a word with a digit or a hyphen)."""
    first = sentence.split(" ", 1)[0]
    return sentence if re.search(r"[\d-]", first) or not first.isascii() else sentence[:1].upper() + sentence[1:]


def number(value: float | None, digits: int = 3) -> str:
    """A number for people: three significant digits, thin spaces between thousands, a dash for nothing."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}".replace(",", "\u202f")


def factor(value: float | None) -> str:
    """`1.42×`."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.2f}×"


def percent(share: float | None) -> str:
    """A share as per cent, one digit below ten."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.1f}\u202f%" if 0 < abs(share) < 0.0995 else f"{100 * share:.0f}\u202f%"


def change(value: float) -> str:
    """A speed-up as a change: `42 % faster`, `12 % slower`; `2.3× as fast` from doubling on."""
    if value >= 2:
        return f"{value:.1f}× as fast"
    return f"{percent(value - 1)} faster" if value >= 1 else f"{percent(1 - value)} slower"


def interval(low: float | None, high: float | None, show: str = "") -> str:
    """`1.38–1.46`; empty when there is none. `show="x"` writes two decimals, otherwise three digits."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{low:.2f}–{high:.2f}" if show == "x" else f"{number(low)}–{number(high)}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else "none"


def verdict_clause(metric: str, axis: Axis, verdicts: Sequence[tuple[Cell, str]]) -> str:
    """What an arm does to a metric over the tested loads, without naming the arm.

    Args:
        metric: column name.
        axis: what the loads are.
        verdicts: (cell, `better` | `worse` | `not resolved`) in the order of the axis.
    """
    name, kinds = metric_name(metric), [verdict for _, verdict in verdicts]
    if not kinds:
        return f"has no {name} to compare"
    if len(set(kinds)) == 1:
        effect = {"better": "improves", "worse": "worsens"}.get(kinds[0])
        return f"{effect} {name} at every tested load" if effect else f"does not change {name} measurably"
    order = [("better", "not resolved", "worse").index(kind) for kind in kinds]
    if axis.numeric and order in (sorted(order), sorted(order, reverse=True)):
        return _turning(name, axis, verdicts)
    better, worse = kinds.count("better"), kinds.count("worse")
    if better and worse:
        return f"improves {name} at {better} and worsens it at {worse} of {len(kinds)} tested loads"
    effect, where = ("improves", better) if better else ("worsens", worse)
    return f"{effect} {name} at {where} of {len(kinds)} tested loads, without a measurable difference at the others"


def _turning(name: str, axis: Axis, verdicts: Sequence[tuple[Cell, str]]) -> str:
    """For verdicts that change once along the axis, with unresolved loads in between at most."""
    places = {kind: [cell.x for cell, verdict in verdicts if verdict == kind] for kind in ("better", "worse")}
    clauses: list[str] = []
    for kind, effect in (("better", "improves"), ("worse", "worsens")):
        if places[kind] and verdicts[0][1] == kind:
            clauses.insert(0, f"{effect} {name} up to {axis.say(places[kind][-1])}")
        elif places[kind]:
            clauses.append(f"{effect} {name} from {axis.say(places[kind][0])} on")
    return " and ".join(clauses)
