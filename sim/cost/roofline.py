"""`roofline`: smooth maximum of memory and compute per op group with fitted parameters; `naive`: datasheet peaks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field

from sim.cost.base import (
    COST_MODELS,
    NO_COST,
    BoundCost,
    CostModel,
    Host,
    PassCost,
)
from sim.cost.bound_engine import BoundEngine, bind_engine, drafter_costs, step_costs
from sim.cost.kernel_choice import marlin_experts, packed_attention
from sim.cost.moe import UNIFORM, Routing
from sim.cost.padding import captured_graphs
from sim.cost.stack import RooflineCost, Stack
from sim.deployment import Deployment
from sim.hardware.engine_profile import find_engine
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
        experts_kernel: routed experts with weights of 4 bits and products in BF16 (MXFP4; NVFP4 before Blackwell).
            `auto` is the kernel of the GPU's profile; `marlin` (vLLM's `VLLM_MXFP4_USE_MARLIN`) computes prompts more
            slowly where the GPU's newest tensor-core instructions are faster; it was measured on L40S alone.
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
    experts_kernel: Literal["auto", "marlin"] = "auto"
    attention_waves: Literal["none", "count"] = "none"
    graphs: Literal["none", "pad"] = "none"

    def located(self, base_dir: Path) -> Self:
        """The same model with the profile's file name counted from `base_dir`."""
        if not names_file(self.profile):
            return self
        return self.model_copy(update={"profile": str(base_dir / self.profile)})

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter."""
        return self._bind(deployment, launches=True)

    def bind_kernels(self, deployment: Deployment) -> BoundCost:
        """The same without the least time of launching prompts: for scaling to measured steps, which hold none."""
        return self._bind(deployment, launches=False)

    def _bind(self, deployment: Deployment, *, launches: bool) -> BoundCost:
        captured = deployment.max_cudagraph_capture_size
        if self.graphs == "none":
            deployment = replace(deployment, max_cudagraph_capture_size=0)
        found = choose_profile(deployment.gpu, self.profile)
        routing = Routing(self.expert_popularity_skew, self.expert_adjacent_correlation)
        chosen, others = self._other_kernels(found, deployment)
        engine, waves = self.bound_engine(chosen.profile.steps), self.attention_waves == "count"
        if launches and chosen.profile.steps is None:  # calibrated steps hold their launches
            engine = engine.launching(captured)
        bound = bind_roofline(deployment, chosen, engine, routing, counts_waves=waves)
        if not others:
            return bound
        caveats = [f"{deployment.gpu.name}: {kernels} were not measured on it" for kernels in others]
        error = max(bound.relative_error, SAME_GENERATION)
        return replace(bound, relative_error=error, caveats=(*bound.caveats, *caveats))

    def _other_kernels(self, found: ChosenProfile, deployment: Deployment) -> tuple[ChosenProfile, list[str]]:
        """The profile with the kernels that are asked for, and what to call those that are not its own."""
        chosen, others = found, []
        if self.attention_kernel == "packed" and (packed := packed_attention(chosen)) is not chosen:
            chosen, others = packed, ["packed attention kernels"]
        if self.experts_kernel == "marlin" and deployment.target.experts:
            marlin = marlin_experts(chosen, deployment.gpu)
            others += [] if marlin is chosen else ["Marlin experts"]
            chosen = marlin
        return chosen, others

    def bound_engine(self, steps: StepFit | None = None) -> BoundEngine:
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
