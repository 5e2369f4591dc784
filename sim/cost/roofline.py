"""`roofline`: smooth maximum of memory and compute per op group with fitted parameters; `naive`: datasheet peaks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field

from sim.cost.base import (
    COST_MODELS,
    NO_COST,
    BoundCost,
    CostModel,
    EngineError,
    Host,
    HostOverhead,
    PassCost,
)
from sim.cost.moe import UNIFORM, Routing
from sim.cost.padding import captured_graphs
from sim.cost.stack import EngineCosts, RooflineCost, Stack
from sim.deployment import Deployment
from sim.hardware.engine_profile import EngineProfile, find_engine
from sim.hardware.profile import CALIBRATED, SAME_GENERATION, ChosenProfile, StepFit, choose_profile, names_file
from sim.models.model import Model
from sim.units import Microseconds, Milliseconds


@COST_MODELS.register
class Roofline(CostModel):
    """Kernel times from fitted efficiencies, plus what the engine adds to them.

    Attributes:
        profile: `auto` (the best one for the GPU), the id of a shipped profile, such as `h100-sxm` or `ideal`, or the
            file name of your own (`specsim calibrate`), counted from the scenario. One calibrated on whole steps brings
            what the engine adds to a step, in place of the engine's profile.
        engine: whose fixed costs: `vllm`, `vllm-0.10`, `vllm-0.6`, `sglang`, `trtllm`, `hf`, `llamacpp`, `magicdec`, or
            `none` (docs/background/cost-model.md, "Engines"); null: those of `engine.preset`.
        host: CPU time per step; by default the engine's.
        draft_launch_ms: launching one drafter pass, which takes at least this; by default the engine's.
        per_draft_token_us: verifying one draft token costs this on top of the kernels; stated, it replaces what the
            engine's profile takes per row through the LM head.
        expert_popularity_skew: exponent s of the popularity of the r-th expert, r^-s. 0, uniform, is what routers are
            trained for with a balance loss; the skewed routing of public kernel tables (`power_law_1.2`) is near 0.85.
        expert_adjacent_correlation: share of a token's experts that repeat those of the tokens before it. 0 is
            independent routing (MoESD, arXiv 2505.19645); no public measurement says more. Both make verification of a
            mixture of experts cheaper at small batch.
        attention_kernel: attention with several new tokens. `auto` is the class of the GPU's profile: `fa2` on A100,
            L40S and RTX GPUs, where verification computes query head by query head, else `packed`. `packed` is what
            FlashInfer runs on those GPUs too (vLLM's `--attention-backend FLASHINFER`); it was not measured there.
        attention_waves: `count` runs sequences of one length in whole waves of thread blocks, where the GPU's kernels
            do (measured on A100): the last wave leaves bandwidth idle, up to a third more time just beyond a full wave.
            `none` spreads the work evenly, as a batch of many lengths does better.
        graphs: `pad` computes batches at the next captured CUDA-graph size; `none` prices them as they are.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "roofline", "host": {"base_ms": 0.3, "per_request_ms": 0.02}}]}
    )

    kind: Literal["roofline"] = "roofline"
    profile: str = "auto"
    engine: str | None = None
    host: Host | None = None
    draft_launch_ms: Milliseconds | None = None
    per_draft_token_us: Microseconds | None = None
    expert_popularity_skew: float = Field(0.0, ge=0, le=4)
    expert_adjacent_correlation: float = Field(0.0, ge=0, le=1)
    attention_kernel: Literal["auto", "packed"] = "auto"
    attention_waves: Literal["none", "count"] = "none"
    graphs: Literal["none", "pad"] = "none"

    def located(self, base_dir: Path) -> Self:
        """The same model with the profile's file name counted from `base_dir`."""
        if not names_file(self.profile):
            return self
        return self.model_copy(update={"profile": str(base_dir / self.profile)})

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter."""
        if self.graphs == "none":
            deployment = replace(deployment, max_cudagraph_capture_size=0)
        found = choose_profile(deployment.gpu, self.profile)
        routing = Routing(self.expert_popularity_skew, self.expert_adjacent_correlation)
        chosen = packed_attention(found) if self.attention_kernel == "packed" else found
        engine, waves = self.bound_engine(chosen.profile.steps), self.attention_waves == "count"
        bound = bind_roofline(deployment, chosen, engine, routing, counts_waves=waves)
        if chosen is found:
            return bound
        caveat = f"{deployment.gpu.name}: packed attention kernels were not measured on it"
        error = max(bound.relative_error, SAME_GENERATION)
        return replace(bound, relative_error=error, caveats=(*bound.caveats, caveat))

    def bound_engine(self, steps: StepFit | None = None) -> "BoundEngine":
        """The engine's costs, with what was calibrated or is stated here in their place."""
        bound = bind_engine(find_engine(self.engine or "vllm"))
        if steps is not None:
            error = replace(bound.error, step_s=0.0, per_row_s=0.0, kv_reads=0.0)
            bound = replace(bound, costs=step_costs(steps), error=error)
        if self.host is not None:
            bound = replace(bound, host=self.host.bind())
        if self.draft_launch_ms is not None:
            error = replace(bound.error, draft_pass_s=0.0)
            bound = replace(bound, draft_launch_s=self.draft_launch_ms * 1e-3, error=error)
        if self.per_draft_token_us is not None:
            costs = bound.costs._replace(row_s=0.0, draft_token_s=self.per_draft_token_us * 1e-6)
            error = replace(bound.error, per_row_s=0.0, per_draft_token_s=0.0)
            bound = replace(bound, costs=costs, error=error)
        return bound


def packed_attention(chosen: ChosenProfile) -> ChosenProfile:
    """The same profile with packed kernels for several new tokens, at the launch and compute rates that it has.

    Itself where its kernels are packed already.
    """
    own = chosen.sections().extend_attention
    if own.kernel == "packed":
        return chosen
    section = own.model_copy(update={"kernel": "packed"})
    return replace(chosen, profile=chosen.profile.model_copy(update={"extend_attention": section}))


@COST_MODELS.register
class Naive(CostModel):
    """The ideal profile: efficiencies 1, no fixed costs, hard maximum. For teaching and tests: 25 to 70 % too fast.

    Attributes:
        host: CPU time per step; none by default.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "naive"}]})

    kind: Literal["naive"] = "naive"
    host: Host = Host()

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter."""
        deployment = replace(deployment, max_cudagraph_capture_size=0)
        engine = replace(bind_engine(find_engine("none")), host=self.host.bind())
        return bind_roofline(deployment, choose_profile(deployment.gpu, "ideal"), engine)


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


def bind_roofline(
    deployment: Deployment,
    chosen: ChosenProfile,
    engine: BoundEngine,
    routing: Routing = UNIFORM,
    *,
    counts_waves: bool = False,
) -> BoundCost:
    """Bind target and drafter to the GPUs with the parameters of `chosen` and of the engine."""
    head = engine.profile.replicates_lm_head
    stack = replace(
        target_stack(deployment, chosen), routing=routing, replicates_lm_head=head, counts_waves=counts_waves
    )
    target = RooflineCost(stack.bind(deployment.target), engine.costs)
    drafter, kernels = deployment.drafter, drafter_costs(engine.costs)
    draft = target
    intake: PassCost = NO_COST
    if drafter is not None:
        on_gpus = drafter_stack(deployment, drafter, chosen)
        on_gpus = replace(on_gpus, replicates_lm_head=head, counts_waves=counts_waves)
        draft = RooflineCost(on_gpus.bind(drafter), kernels)
        if drafter.states_in:
            intake = RooflineCost(on_gpus.bind_intake(drafter), kernels)
    error = stack.relative_error(deployment.target)
    return BoundCost(
        target=target,
        draft=draft,
        host=engine.host,
        draft_launch_s=engine.draft_launch_s,
        profile=f"{chosen.profile.id}/{deployment.weight_dtype}",
        relative_error=error,
        engine_error=engine.error,
        caveats=tuple(_caveats(deployment, chosen, error)) + engine.profile.caveats,
        checked_batch=engine.profile.checked_batch,
        checked_context_tokens=engine.profile.checked_context_tokens,
        intake=intake,
    )


def drafter_costs(target: EngineCosts) -> EngineCosts:
    """What comes on top of a drafter's kernels.

    KV is read again in passes that verify drafts only: those of a target whose first layers are the drafter.
    """
    return EngineCosts(time_scale=target.time_scale, kv_reads=target.kv_reads)


def _caveats(deployment: Deployment, chosen: ChosenProfile, error: float) -> Iterator[str]:
    """Why step times of a deployment are less certain than those of a measured GPU, format and dense model."""
    model, profile = deployment.target, chosen.profile.id
    if chosen.relative_error > CALIBRATED:
        yield f"{deployment.gpu.name}: kernels not measured, priced with profile {profile}"
    elif error > CALIBRATED and not (model.experts or model.is_mla):
        yield f"{deployment.weight_dtype} weights on {deployment.gpu.name}: kernels not measured"
    if model.experts:
        yield "mixture of experts: which kernel the engine picks moves times up to five-fold"
    if model.is_mla:
        yield "MLA attention: the efficiency of verification is not identified by measurements"
    if model.weight_dtype == "fp8":
        yield f"{model.name} is published in FP8 blocks: only per-tensor FP8 was measured"


def target_stack(deployment: Deployment, chosen: ChosenProfile) -> Stack:
    """GPUs and formats of the target."""
    return Stack(
        gpu=deployment.gpu,
        chosen=chosen,
        tensor_parallel_size=deployment.tensor_parallel_size,
        weight_dtype=deployment.weight_dtype,
        kv_cache_dtype=deployment.kv_cache_dtype,
        graphs=captured_graphs(deployment.max_cudagraph_capture_size),
        expert_parallel=deployment.expert_parallel,
    )


def drafter_stack(deployment: Deployment, drafter: Model, chosen: ChosenProfile) -> Stack:
    """GPUs and formats of the drafter: its own weight format, the target's KV format."""
    return Stack(
        gpu=deployment.gpu,
        chosen=chosen,
        tensor_parallel_size=deployment.drafter_tensor_parallel_size,
        weight_dtype=drafter.resolve_weight_dtype(deployment.drafter_weight_dtype),
        kv_cache_dtype=deployment.kv_cache_dtype,
        graphs=captured_graphs(deployment.max_cudagraph_capture_size),
        expert_parallel=deployment.expert_parallel,
    )
