"""What to doubt about results: notes of the run, unresolved or failed loads, saturation, capacity, thin margins."""

from collections.abc import Mapping

from sim.report import crossings as be
from sim.report.axis import Cell, Slice, say_value
from sim.report.figures.badges import cost_profiles
from sim.report.reader import Ratio, Results
from sim.report.wording import listed, metric_name, number


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
