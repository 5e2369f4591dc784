"""`roofline`: smooth maximum of memory and compute per op group with fitted parameters; `naive`: datasheet peaks."""

from dataclasses import replace
from typing import Literal

from sim.cost.base import COST_MODELS, BoundCost, CostModel, Host, HostOverhead
from sim.cost.padding import captured_graphs
from sim.cost.stack import RooflineCost, Stack
from sim.deployment import Deployment
from sim.hardware.profile import ChosenProfile, choose_profile
from sim.models.model import Model
from sim.units import Microseconds, Milliseconds


@COST_MODELS.register
class Roofline(CostModel):
    """Kernel times from fitted efficiencies, plus the engine's fixed costs.

    Attributes:
        profile: `auto` (the best one for the GPU) or the id of a shipped profile, such as `h100-sxm` or `ideal`.
        host: CPU time per step.
        draft_launch_ms: launching one drafter pass: what an EAGLE pass takes on top of its kernels in vLLM 0.10
            (SpecDecode-Bench, arXiv 2601.11580; docs/background/cost-model.md, "Fixed costs").
        per_draft_token_us: verifying one draft token costs this on top of the kernels: float32 logits, rejection
            sampling, ragged metadata (same source; 9 us fits eight measured cells to 3 %, and it is not separated from
            a dearer KV read).
        graphs: `pad` computes batches at the next captured CUDA-graph size; `none` prices them as they are.
    """

    kind: Literal["roofline"] = "roofline"
    profile: str = "auto"
    host: Host = Host(base_ms=0.3, per_request_ms=0.02)
    draft_launch_ms: Milliseconds = 0.43
    per_draft_token_us: Microseconds = 9.0
    graphs: Literal["none", "pad"] = "none"

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter."""
        if self.graphs == "none":
            deployment = replace(deployment, max_cudagraph_capture_size=0)
        chosen = choose_profile(deployment.gpu, self.profile)
        return bind_roofline(
            deployment, chosen, self.host.bind(), self.draft_launch_ms * 1e-3, self.per_draft_token_us * 1e-6
        )


@COST_MODELS.register
class Naive(CostModel):
    """The ideal profile: efficiencies 1, no fixed costs, hard maximum. For teaching and tests: 25 to 70 % too fast.

    Attributes:
        host: CPU time per step; none by default.
    """

    kind: Literal["naive"] = "naive"
    host: Host = Host()

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter."""
        deployment = replace(deployment, max_cudagraph_capture_size=0)
        return bind_roofline(deployment, choose_profile(deployment.gpu, "ideal"), self.host.bind(), 0.0, 0.0)


def bind_roofline(
    deployment: Deployment, chosen: ChosenProfile, host: HostOverhead, draft_launch_s: float, draft_token_s: float
) -> BoundCost:
    """Bind target and drafter to the GPUs with the parameters of `chosen`."""
    stack = target_stack(deployment, chosen)
    target = RooflineCost(stack.bind(deployment.target), draft_token_s)
    drafter = deployment.drafter
    draft = target if drafter is None else RooflineCost(drafter_stack(deployment, drafter, chosen).bind(drafter))
    return BoundCost(
        target=target,
        draft=draft,
        host=host,
        draft_launch_s=draft_launch_s,
        profile=f"{chosen.profile.id}/{deployment.weight_dtype}",
        relative_error=stack.relative_error(deployment.target),
    )


def target_stack(deployment: Deployment, chosen: ChosenProfile) -> Stack:
    """GPUs and formats of the target."""
    return Stack(
        gpu=deployment.gpu,
        chosen=chosen,
        tensor_parallel_size=deployment.tensor_parallel_size,
        weight_dtype=deployment.weight_dtype,
        kv_cache_dtype=deployment.kv_cache_dtype,
        graphs=captured_graphs(deployment.max_cudagraph_capture_size),
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
    )
