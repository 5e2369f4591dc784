"""What may be wrong in a scenario, by how much it is taken to be, and what a sensitivity study asks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import ScenarioError
from sim.experiment.axes import CONCURRENCY, REQUEST_RATE
from sim.scenario.schema import Scenario, Sweep
from sim.scenario.suggestions import did_you_mean

Range = tuple[float, float]

#: Shares by which inputs are taken to be uncertain where nothing better is known.
ACCEPTANCE, LENGTHS, LOAD, TIMES = 0.10, 0.25, 0.25, 0.10
#: Factors between which flip points are looked for.
SEARCHED = (0.25, 4.0)


@dataclass(frozen=True, slots=True)
class Input:
    """Something that may be wrong.

    Attributes:
        name: as on the command line.
        key: dotted key; `what_if.` keys are factors, others are values to be scaled.
        is_time: uncertain by the relative error that the cost profile states.
        share: uncertainty where it is no time.
        moves_plain: plain decoding depends on it too.
        most: largest factor that makes sense.
    """

    name: str
    key: str
    is_time: bool
    share: float
    moves_plain: bool
    most: float = math.inf

    def value(self, scenario: Scenario, factor: float) -> float:
        """What to write under `key`: whole numbers where only those make sense."""
        value = factor * (stated_value(scenario, self) or 1.0)
        return max(1, round(value)) if self.key == CONCURRENCY else value

    def least(self, scenario: Scenario) -> float:
        """The smallest factor that makes sense: one request at a time."""
        return 1.0 / (stated_value(scenario, self) or 1.0) if self.key == CONCURRENCY else 0.0


INPUTS = {
    one.name: one
    for one in (
        Input("acceptance", "what_if.acceptance", False, ACCEPTANCE, False, 2.0),
        Input("verify_time", "what_if.verify_time", True, TIMES, False),
        Input("draft_time", "what_if.draft_time", True, TIMES, False),
        Input("host_time", "what_if.host_time", True, TIMES, True),
        Input("target_time", "what_if.target_time", True, TIMES, True),
        Input("prompt_tokens", "what_if.prompt_tokens", False, LENGTHS, True),
        Input("output_tokens", "what_if.output_tokens", False, LENGTHS, True),
        Input("concurrency", CONCURRENCY, False, LOAD, True),
        Input("request_rate", REQUEST_RATE, False, LOAD, True, 1.5),
    )
}
#: Names for several inputs at once.
GROUPS = {"lengths": ("prompt_tokens", "output_tokens")}


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked.

    Attributes:
        arm: decided upon, against the baseline.
        inputs: what may be wrong.
        ranges: plausible factors by input, where the user states them.
        searched: factors between which a flip is looked for.
        objective: metric that decides.
        min_gain: speed-up that counts as paying.
        replicates: paired runs of every point.
        confidence: of all intervals.
    """

    arm: str
    inputs: tuple[Input, ...]
    ranges: Mapping[str, Range]
    searched: Range
    objective: str
    min_gain: float
    replicates: int
    confidence: float


def chosen_inputs(scenario: Scenario, names: Sequence[str] | None) -> tuple[Input, ...]:
    """The inputs of these names; all that the scenario has when None.

    Raises:
        ScenarioError: an unknown name, or an input that this scenario does not have.
    """
    load = "concurrency" if stated_value(scenario, INPUTS["concurrency"]) is not None else "request_rate"
    if names is None:
        others = {"concurrency", "request_rate"} - {load}
        found = [name for name in INPUTS if name not in others]
        return tuple(INPUTS[name] for name in found if stated_value(scenario, INPUTS[name]) is not None)
    wanted = [part for name in names for part in GROUPS.get(name, (name,))]
    known = [*INPUTS, *GROUPS]
    problems = [f"no such input: {name!r}{did_you_mean(name, known)}" for name in wanted if name not in INPUTS]
    missing = [name for name in wanted if name in INPUTS and stated_value(scenario, INPUTS[name]) is None]
    problems += [f"{name}: this scenario has no {INPUTS[name].key}" for name in missing]
    if problems:
        raise ScenarioError(f"{'; '.join(problems)}; allowed: {', '.join(known)}")
    return tuple(INPUTS[name] for name in dict.fromkeys(wanted))


def stated_value(scenario: Scenario, one: Input) -> float | None:
    """The value in the scenario; None when it has no such field."""
    value: Any = scenario
    for part in one.key.split("."):
        value = getattr(value, part, None)
    return None if value is None else float(value)


def at_operating_point(scenario: Scenario) -> Scenario:
    """The scenario with nothing varied."""
    return scenario.model_copy(update={"sweep": Sweep(replicates=scenario.sweep.replicates)})
