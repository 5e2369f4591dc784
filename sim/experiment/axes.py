"""What a break-even is looked for along: named axes, and a first sweep over each."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.errors import ScenarioError
from sim.experiment.answers import closed_forms
from sim.experiment.explain import decode_context
from sim.scenario.dump import plain_data
from sim.scenario.load import LoadedScenario, load_mapping
from sim.scenario.suggestions import did_you_mean

CONCURRENCY, REQUEST_RATE = "workload.arrivals.max_concurrency", "workload.arrivals.request_rate"
#: Requests of an open-loop point: enough for a mean, few enough to answer at once. The scenario's own number wins.
OPEN_LOOP_REQUESTS = 2000
#: Points of a first sweep per factor of two, at least and at most.
FEWEST, MOST = 5, 10


@dataclass(frozen=True, slots=True)
class Axis:
    """Something to vary.

    Attributes:
        name: as on the command line.
        key: the dotted key; `{arm}` stands for an arm.
        low, high: default range; None where the scenario has to say.
        whole: whole numbers only.
        needs: sections to replace first, so that the key exists.
    """

    name: str
    key: str
    low: float | None
    high: float | None
    whole: bool
    needs: Mapping[str, Mapping[str, Any]]


AXES = {
    axis.name: axis
    for axis in (
        Axis("concurrency", CONCURRENCY, 1, 256, True, {"arrivals": {"kind": "closed"}}),
        Axis("request_rate", REQUEST_RATE, None, None, False, {"arrivals": {"kind": "poisson"}}),
        Axis("context", "workload.prompt_tokens.value", 128, 16384, True, {"prompt_tokens": {"kind": "fixed"}}),
        Axis("output_length", "workload.output_tokens.value", 16, 2048, True, {"output_tokens": {"kind": "fixed"}}),
        Axis("k", "arms.{arm}.speculative_config.num_speculative_tokens", 1, 8, True, {}),
        Axis("acceptance", "what_if.acceptance", 0.5, 1.3, False, {}),
        Axis("draft_time", "what_if.draft_time", 0.25, 8, False, {}),
        Axis("verify_time", "what_if.verify_time", 0.7, 1.5, False, {}),
    )
}


def axis_of(name: str) -> Axis:
    """The axis of this name, or the field with this dotted key.

    Raises:
        ScenarioError: neither.
    """
    if name in AXES:
        return AXES[name]
    if "." not in name:
        hint = did_you_mean(name, AXES) or f"; allowed: {', '.join(AXES)}, or the dotted key of a field"
        raise ScenarioError(f"--over: no such axis: {name!r}{hint}")
    return Axis(name, name, None, None, False, {})


def first_sweep(
    loaded: LoadedScenario, axis: Axis, limits: tuple[float, float] | None, settings: Mapping[str, Any]
) -> LoadedScenario:
    """The scenario with only this axis varied: evenly on a log scale, and where the closed forms cross.

    Args:
        loaded: the question.
        axis: what to vary.
        limits: range; None takes the axis' own.
        settings: `sweep.breakeven` and other keys of `sweep` to set.

    Raises:
        ScenarioError: no range, or the field cannot be varied so.
    """
    low, high = limits if limits is not None else (axis.low, axis.high)
    if low is None or high is None:
        raise ScenarioError(f"{axis.name}: no range is known; state --range LOW:HIGH")
    if limits is None and axis.name in ("context", "output_length"):
        high = min(high, (loaded.scenario.engine.max_model_len or math.inf) // 2)
    if not 0 < low < high < math.inf:
        raise ScenarioError(f"--range {low:g}:{high:g}; allowed: 0 < LOW < HIGH")
    if axis.whole and math.floor(high) <= math.ceil(low):
        raise ScenarioError(f"--range {low:g}:{high:g}: {axis.name} takes whole numbers; there are no two between them")
    data = plain_data(loaded.scenario)
    for section, value in axis.needs.items():
        if data["workload"][section]["kind"] != value["kind"]:
            data["workload"][section] = dict(value) | {axis.key.rpartition(".")[2]: high}
    if axis.key == REQUEST_RATE and data["workload"]["num_requests"] is None:
        data["workload"]["num_requests"] = OPEN_LOOP_REQUESTS
    values = spread(low, high, axis.whole)
    if axis.key == CONCURRENCY:
        values = sorted({*values, *_closed_form_crossings(loaded, low, high)})
    data["sweep"] = data["sweep"] | dict(settings) | {"vary": {_key(axis, loaded, data): values}, "combine": "grid"}
    found = load_mapping(data, loaded.base_dir)
    return LoadedScenario(found.scenario, found.base_dir, loaded.source_text, (*loaded.notes, *found.notes))


def _key(axis: Axis, loaded: LoadedScenario, data: Mapping[str, Any]) -> str:
    """The axis' key with `{arm}` filled in: there must be one speculative arm, and K must not be its rule's."""
    if "{arm}" not in axis.key:
        return axis.key
    arms = [name for name in data["arms"] if name != data["baseline"]]
    if len(arms) != 1:
        raise ScenarioError(f"--over {axis.name} is about one arm; choose it with --arms, one of {', '.join(arms)}")
    key, rule = axis.key.format(arm=arms[0]), loaded.scenario.arms[arms[0]].k_rule.kind
    if rule != "fixed":
        raise ScenarioError(
            f"--over {axis.name}: K of {arms[0]} is chosen by its rule {rule}, and num_speculative_tokens is only its "
            f"cap; state draft_length: {{kind: fixed}}, or look for the cap with --over {key} --range LOW:HIGH"
        )
    return key


def spread(low: float, high: float, whole: bool) -> list[float] | list[int]:
    """About a point per factor of two, evenly on a log scale, both ends included."""
    count = int(np.clip(np.ceil(np.log2(high / low)) + 1, FEWEST, MOST))
    points = np.geomspace(low, high, count)
    if whole:
        least, most = math.ceil(low), math.floor(high)
        return sorted({min(max(round(value), least), most) for value in points.tolist()})
    return [float(f"{value:.4g}") for value in points.tolist()]


def _closed_form_crossings(loaded: LoadedScenario, low: float, high: float) -> list[int]:
    """Whole concurrencies where the closed forms cross and between their crossings.

    A good first guess, and never a worse one: between two crossings close together a coarse first round sees nothing.
    """
    scenario = loaded.scenario
    _, curves = closed_forms(scenario, loaded.base_dir, decode_context(loaded))
    found = list[float]()
    for curve in curves.values():
        places = [crossing.value for crossing in curve.crossings]
        found += [*places, *(math.sqrt(a * b) for a, b in itertools.pairwise(places))]
    return sorted({round(value) for value in found if low < value < high})
