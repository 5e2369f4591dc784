"""An engine's profile, or calibrated steps, as what comes on top of the kernels of a pass."""

from dataclasses import dataclass, replace

from sim.cost.base import EngineError, HostOverhead
from sim.cost.stack import EngineCosts
from sim.hardware.engine_profile import EngineProfile
from sim.hardware.profile import StepFit


@dataclass(frozen=True, slots=True)
class BoundEngine:
    """An engine profile in seconds.

    Attributes:
        costs: on top of the kernels of a target pass.
        host: CPU time per step.
        draft_launch_s: the shortest drafter pass.
        error: one-sigma errors of what speculation adds.
        profile: where it comes from.
    """

    costs: EngineCosts
    host: HostOverhead
    draft_launch_s: float
    error: EngineError
    profile: EngineProfile

    def launching(self, captured_tokens: int) -> "BoundEngine":
        """The same, with what it takes to launch passes that CUDA graphs of so many tokens do not cover."""
        profile = self.profile
        costs = self.costs._replace(
            eager_layer_s=profile.eager_layer_ms.value * 1e-3,
            eager_triton_s=profile.eager_triton_ms.value * 1e-3,
            captured_tokens=captured_tokens if profile.graphs_hold_prompts else 0,
        )
        return replace(self, costs=costs)


def step_costs(steps: StepFit) -> EngineCosts:
    """What calibrated steps have on top of their kernels."""
    return EngineCosts(
        row_s=steps.per_row_us * 1e-6,
        kv_reads=steps.kv_reads,
        time_scale=steps.time_scale,
        step_s=steps.per_step_us * 1e-6,
    )


def bind_engine(engine: EngineProfile) -> BoundEngine:
    """The values of a profile in seconds."""
    drafts = engine.per_draft_token_us
    return BoundEngine(
        costs=EngineCosts(
            row_s=engine.per_row_us.value * 1e-6,
            speculative_step_s=engine.speculative_step_ms.value * 1e-3,
            kv_reads=engine.kv_reads.value,
            time_scale=engine.time_scale.value,
            launch_overlap=engine.launch_overlap.value,
            draft_token_s=0.0 if drafts is None else drafts.value * 1e-6,
            expands_drafts=engine.expands_drafts,
        ),
        host=HostOverhead(
            engine.host_base_ms.value * 1e-3, engine.host_per_request_ms.value * 1e-3, engine.host_is_remainder
        ),
        draft_launch_s=engine.draft_pass_ms.value * 1e-3,
        error=EngineError(
            step_s=engine.speculative_step_ms.error * 1e-3,
            per_row_s=engine.per_row_us.error * 1e-6,
            per_draft_token_s=0.0 if drafts is None else drafts.error * 1e-6,
            draft_pass_s=engine.draft_pass_ms.error * 1e-3,
            kv_reads=engine.kv_reads.error,
        ),
        profile=engine,
    )


def drafter_costs(target: EngineCosts) -> EngineCosts:
    """What comes on top of a drafter's kernels.

    KV is read again in passes that verify drafts only: those of a target whose first layers are the drafter.
    """
    return EngineCosts(time_scale=target.time_scale, kv_reads=target.kv_reads, launch_overlap=target.launch_overlap)
