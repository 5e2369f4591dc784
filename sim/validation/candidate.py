"""Engine profiles that are not shipped, in scenarios: what a fit tries."""

from collections.abc import Mapping

from sim.cost.bound_engine import BoundEngine, bind_engine
from sim.cost.roofline import Roofline
from sim.errors import InvariantError
from sim.hardware.engine_profile import EngineProfile
from sim.hardware.profile import StepFit
from sim.scenario.schema import Scenario

#: The parameters of an engine profile that speculative cells say something about.
PARAMETERS = (
    "host_base_ms", "host_per_request_ms", "draft_pass_ms", "speculative_step_ms", "per_row_us", "kv_reads",
)  # fmt: skip


def values_of(engine: EngineProfile) -> dict[str, float]:
    """The values of a profile's `PARAMETERS`, in its units."""
    return {name: getattr(engine, name).value for name in PARAMETERS}


def with_values(engine: EngineProfile, values: Mapping[str, float]) -> EngineProfile:
    """The profile with other values of some `PARAMETERS`."""
    changed = {name: getattr(engine, name).model_copy(update={"value": value}) for name, value in values.items()}
    return engine.model_copy(update=changed)


class _Candidate(Roofline):
    """The fitted kernels with an engine of one's own; no `kind` of its own, since no scenario can name it."""

    candidate: EngineProfile

    def bound_engine(self, steps: StepFit | None = None) -> BoundEngine:
        """The candidate's costs."""
        del steps
        return bind_engine(self.candidate)


def with_engine(scenario: Scenario, engine: EngineProfile) -> Scenario:
    """The same scenario with the costs of this engine.

    Raises:
        InvariantError: its cost model has no engine.
    """
    cost = scenario.cost_model
    if not isinstance(cost, Roofline):
        raise InvariantError(f"cost model {cost.kind} has no engine")
    return scenario.model_copy(update={"cost_model": _Candidate(**cost.model_dump(), candidate=engine)})
