"""From finished runs to `breakeven.json`: picks the axis, draws the closed forms, asks the question for every arm."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sim.cost.base import BoundCost
from sim.errors import SimError
from sim.experiment.analytic import AnalyticCurve, analytic_curve, analytic_document, why_not
from sim.experiment.break_even import Question, arms_document, numeric_axis, slices
from sim.experiment.compare import Runs
from sim.scenario.build import set_up
from sim.scenario.cells import Cell
from sim.scenario.schema import Breakeven, Scenario

Json = dict[str, object]


def break_even_document(
    scenario: Scenario, base_dir: Path, cells: Sequence[Cell], runs: Runs, context_tokens: float
) -> Json:
    """The content of `breakeven.json`.

    With several varied fields the answers are under `slices`, one per combination of the others, and `arms` is empty.
    The closed forms are those of the first cell.

    Args:
        scenario: the whole experiment.
        base_dir: where its file names start.
        cells: all cells.
        runs: what finished.
        context_tokens: mean context of a decoding request, for the closed form.
    """
    spec = scenario.sweep.breakeven or Breakeven()
    analytic, curves = closed_forms(cells[0].scenario, base_dir, round(context_tokens))
    document: Json = {
        "axis": None,
        "confidence": spec.confidence,
        "min_gain": spec.min_gain,
        "arms": {},
        "analytic": analytic,
    }
    if scenario.sweep.breakeven is None or not scenario.sweep.vary:
        return document | {"reason": "nothing is varied"}
    axis = next(iter(scenario.sweep.vary))
    values = [(cell.cell_id, _along(cell.vary, axis, scenario.sweep.combine)) for cell in cells]
    if not numeric_axis(values, axis):
        return document | {"reason": f"{axis} is not varied over two or more positive numbers"}
    question = Question(axis, spec.objectives, spec.confidence, scenario.baseline, spec.min_gain)
    found = [
        {"vary": others, "arms": arms_document(runs, points, scenario.arms, question, curves)}
        for others, points in slices(values, axis)
    ]
    document["axis"] = axis
    if len(found) == 1:
        return document | {"arms": found[0]["arms"]}
    return document | {"slices": found}


def _along(vary: Mapping[str, object], axis: str, combine: str) -> Mapping[str, object]:
    """What tells the slices apart: nothing where the fields vary together with the axis."""
    return {axis: vary[axis]} if combine == "zip" else vary


def closed_forms(scenario: Scenario, base_dir: Path, context_tokens: int) -> tuple[Json, dict[str, AnalyticCurve]]:
    """The closed form of every arm, as JSON and as curves; an arm without one says why."""
    documents: Json = {}
    curves: dict[str, AnalyticCurve] = {}
    opted_out = any(not traffic.speculate for traffic in scenario.workload.classes)
    for name in scenario.arms:
        if name == scenario.baseline:
            continue
        try:
            baseline, arm = (set_up(scenario, each, base_dir) for each in (scenario.baseline, name))
            reason = "a traffic class does not speculate" if opted_out else why_not(arm) or why_not(baseline)
            if not reason:
                curves[name] = analytic_curve(arm, baseline, context_tokens)
                documents[name] = analytic_document(curves[name])
        except SimError as error:
            reason = str(error)
        if reason:
            documents[name] = {"status": "omitted", "reason": reason, "batch": [], "speedup": [], "crossings": []} | {
                "band_low": [],
                "band_high": [],
                "context_tokens": context_tokens,
            }
    return documents, curves


def cost_profile(scenario: Scenario, base_dir: Path, cells: Sequence[Cell]) -> Mapping[str, object]:
    """Id and relative error of the baseline's cost profile, and the engine, for badges."""
    try:
        cost = set_up(cells[0].scenario, scenario.baseline, base_dir).cost
    except SimError:
        return {}
    found: dict[str, object] = {"kind": scenario.cost_model.kind, "profile": cost.profile}
    engine = getattr(scenario.cost_model, "engine", None)
    return found | {"relative_error": cost.relative_error} | ({"engine": engine} if engine else {})


def cost_caveats(scenario: Scenario, base_dir: Path, cells: Sequence[Cell], context_tokens: float) -> tuple[str, ...]:
    """Why step times of any arm lie outside of what was checked against measurements, one clause each.

    Args:
        scenario: the whole experiment.
        base_dir: where its file names start.
        cells: all cells; the arms of the first are bound, the load is that of all.
        context_tokens: mean context of a decoding request.
    """
    found: dict[str, None] = {}
    for arm in scenario.arms:
        try:
            setup = set_up(cells[0].scenario, arm, base_dir)
        except SimError:
            continue
        found |= dict.fromkeys(setup.cost.caveats)
        if setup.arm.speculative_config.max_draft_tokens:
            batch = max(_largest_load(cell.scenario, setup.engine.max_num_seqs) for cell in cells)
            found |= dict.fromkeys(_beyond(setup.cost, batch, context_tokens))
    return tuple(found)


def _largest_load(scenario: Scenario, max_num_seqs: int | None) -> float:
    """The largest batch a cell can reach; open loops count as the limit of the engine."""
    clients = getattr(scenario.workload.arrivals, "max_concurrency", None)
    return min(max_num_seqs or math.inf, clients or math.inf)


def _beyond(cost: BoundCost, batch: float, context_tokens: float) -> Iterator[str]:
    if cost.checked_batch and batch > cost.checked_batch:
        yield f"speculative steps were checked up to batch {cost.checked_batch}; here up to {batch:,.0f} requests run"
    if cost.checked_context_tokens and context_tokens > cost.checked_context_tokens:
        reach = f"{cost.checked_context_tokens:,} tokens of context"
        yield f"speculative steps were checked up to {reach}; here the mean is {context_tokens:,.0f}"
