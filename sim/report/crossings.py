"""What `breakeven.json` says, in words: used by the verdict, the speed-up panel and the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.statistics import MIN_REQUESTS_FOR_P99
from sim.report.axis import Axis, Slice, others_label, say_value
from sim.report.reader import Results
from sim.report.wording import factor, interval, listed, number, verdict_clause

#: one entry of `breakeven.json`: an arm and an objective
Found = Mapping[str, Any]


def entry(results: Results, arm: str, objective: str, part: Slice) -> Found | None:
    """The break-even of one arm and objective in one slice, or None when it was not asked for."""
    found = (_arms(results, part).get(arm) or {}).get(objective)
    return found if isinstance(found, Mapping) else None


def _arms(results: Results, part: Slice) -> Mapping[str, Any]:
    """Arm -> objective -> break-even; a sweep over several fields has one such table per slice."""
    for each in results.break_even.get("slices") or ():
        if others_label(each.get("vary") or {}) == part.label:
            found: Mapping[str, Any] = each.get("arms") or {}
            return found
    return results.break_even.get("arms") or {}


def objectives(results: Results) -> list[str]:
    """Objectives with a break-even, in the order of the file."""
    tables = [table for part in results.slices for table in _arms(results, part).values()]
    return list(dict.fromkeys(name for table in tables for name in table))


#: what is compared when no break-even was asked for
_DEFAULT = ("output_throughput", "mean_tpot_ms")


def telling(results: Results) -> list[str]:
    """Objectives that say something: at an equal arrival rate, for instance, throughput repeats the offered load.

    Those with a break-even; when there is none, the one that differs from the baseline at most loads.
    """
    asked = objectives(results) or list(_DEFAULT)
    found = [objective for objective in asked if _is_settled(results, objective)]
    return found or sorted(asked, key=lambda objective: -_num_resolved(results, objective))[:1]


def main_objective(results: Results) -> str:
    """The objective by which the page judges: the first that says something."""
    return telling(results)[0]


def _is_settled(results: Results, objective: str) -> bool:
    entries = [entry(results, arm, objective, part) for part in results.slices for arm in results.challengers]
    return any(found is not None and found.get("status") != "indeterminate" for found in entries)


def _num_resolved(results: Results, objective: str) -> int:
    ratios = [results.ratio(cell, arm, objective) for cell in results.done for arm in results.challengers]
    return sum(ratio is not None and ratio.verdict != "not resolved" for ratio in ratios)


def crossings(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The crossings that have a value, in order."""
    known = [crossing for crossing in found.get("crossings") or () if crossing.get("value") is not None]
    return sorted(known, key=lambda crossing: float(crossing["value"]))


def answer(found: Mapping[str, Any], axis: Axis) -> str:
    """Up to where it pays, as a clause without a subject: `pays up to about 85 concurrent requests`."""
    status, known = str(found.get("status", "")), crossings(found)
    span = _span(found, axis)
    if status == "always":
        return f"pays at every tested load ({span})"
    if status == "never":
        return f"does not pay at any tested load ({span})"
    if not known:
        return f"is not resolved over {span}"
    return ", ".join(_clause(crossing, axis, first=index == 0) for index, crossing in enumerate(known))


def clause(results: Results, axis: Axis, part: Slice, arm: str, objective: str, title: bool = False) -> str:
    """What an arm does by one objective; without a break-even, what the loads one by one say.

    Args:
        results: the experiment.
        axis: what it varies.
        part: the slice.
        arm: the arm that is the subject of the clause.
        objective: metric column.
        title: name the tested loads around a crossing instead of the interpolated crossing.
    """
    found = entry(results, arm, objective, part)
    if found is not None and found.get("status") != "indeterminate":
        return stops(found, axis) if title else answer(found, axis)
    known = [(cell, ratio.verdict) for cell in part.cells if (ratio := results.ratio(cell, arm, objective))]
    return verdict_clause(objective, axis, known)


def stops(found: Mapping[str, Any], axis: Axis) -> str:
    """For a title, from the tested loads around the crossing: `stops paying between 64 and 128 concurrent requests`."""
    known = crossings(found)
    if len(known) != 1 or known[0].get("direction") != "gain_to_loss":
        return answer(found, axis)
    low, high = _bracket(known[0])
    if low is None or high is None:
        return answer(found, axis)
    if low == high:
        return f"stops paying at {axis.say(low)}"
    return f"stops paying between {axis.span(low, high, 'and')}"


def together(pairs: Sequence[tuple[str, str]]) -> str:
    """`(arm, clause)` pairs as one sentence; arms with the same clause share it: `a and b pay at every tested load`."""
    groups: dict[str, list[str]] = {}
    for arm, clause in pairs:
        groups.setdefault(clause, []).append(arm)
    return "; ".join(
        f"{listed(arms)} {clause if len(arms) == 1 else _plural(clause)}" for clause, arms in groups.items()
    )


def _plural(clause: str) -> str:
    verb, rest = clause.split(" ", 1)
    plurals = {"pays": "pay", "does": "do", "is": "are", "stops": "stop", "improves": "improve", "worsens": "worsen"}
    return f"{plurals.get(verb, verb)} {rest}"


def precise(crossing: Mapping[str, Any], ci: str) -> str:
    """`85 (95 % CI 79–92; between 64 and 128)`; the model band is added where there is one."""
    parts = []
    if ends := interval(crossing.get("ci_low"), crossing.get("ci_high")):
        parts.append(f"{ci} {ends}")
    low, high = _bracket(crossing)
    if low is not None and high is not None and low != high:
        parts.append(f"tested loads {say_value(low)} and {say_value(high)}")
    if edges := band(crossing):
        parts.append(f"cost model band {edges}")
    return f"{number(crossing['value'])}" + (f" ({'; '.join(parts)})" if parts else "")


def gain(found: Mapping[str, Any], axis: Axis) -> str:
    """`up to 2.29× (at 1 concurrent requests)`; empty without a maximum."""
    best, at = found.get("max_gain"), found.get("at")
    if best is None:
        return ""
    return f"{factor(float(best))} at {axis.short} {say_value(at)}" if at is not None else factor(float(best))


def caveats(found: Found, baseline: str, axis: Axis) -> list[str]:
    """What limits the answer, as clauses: a full KV pool, an engine that cannot keep up, too few requests for a p99."""
    clauses = ["KV cache full first"] if found.get("capacity_reached_first") else []
    ours, theirs = found.get("saturates_at"), found.get("baseline_saturates_at")
    if ours is not None:
        order = "before" if theirs is None or theirs > ours else "like" if theirs == ours else "after"
        clauses.append(f"saturates at {axis.say(ours)}, {order} {baseline}")
    elif theirs is not None:
        clauses.append(f"keeps up where {baseline} saturates at {axis.say(theirs)}")
    saturated = min((load for load in (ours, theirs) if load is not None), default=float("inf"))
    lost = [load for load in found.get("left_out") or () if load < saturated]
    if lost and found.get("status") != "indeterminate":
        clauses.append(f"nothing to compare at {axis.short} {listed([say_value(load) for load in lost])}")
    fewest = found.get("fewest_requests")
    if fewest is not None and fewest < MIN_REQUESTS_FOR_P99:
        clauses.append(f"p99 of as few as {fewest} requests: fewer than {MIN_REQUESTS_FOR_P99}")
    return clauses


def _clause(crossing: Mapping[str, Any], axis: Axis, first: bool) -> str:
    value = number(crossing["value"], 2 if float(crossing["value"]) < 100 else 3)
    if crossing.get("direction") == "loss_to_gain":
        return f"{'pays only' if first else 'pays again'} from about {axis_say(value, axis)} on"
    return (
        f"pays up to about {axis_say(value, axis)}" if first else f"stops paying again at about {axis_say(value, axis)}"
    )


def axis_say(value: str, axis: Axis) -> str:
    """A formatted number with what it counts."""
    return f"{value} {axis.noun}" if axis.noun else f"{axis.short} {value}"


def band(crossing: Mapping[str, Any]) -> str:
    """Where the crossing moves with the cost model's error; an end that is null lies outside the tested range."""
    low, high = crossing.get("model_band_low"), crossing.get("model_band_high")
    if low is None and high is None:
        return ""
    if low is not None and high is not None:
        return interval(low, high)
    return f"above {number(low)}" if high is None else f"below {number(high)}"


def _bracket(crossing: Mapping[str, Any]) -> tuple[float | None, float | None]:
    bracket: Sequence[Any] = crossing.get("bracket") or (None, None)
    return (bracket[0], bracket[1]) if len(bracket) == 2 else (None, None)


def _span(found: Mapping[str, Any], axis: Axis) -> str:
    tested: Sequence[Any] = found.get("range_tested") or ()
    return axis.span(tested[0], tested[-1], "to") if len(tested) >= 2 else axis.short
