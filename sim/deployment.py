"""Model x GPUs x parallelism x dtypes -> memory budget, KV blocks, feasibility. `sim/memory.py` counts the bytes."""

from dataclasses import dataclass, replace

from sim.errors import CapacityError, ScenarioError
from sim.hardware.gpu import Gpu
from sim.memory import Layout, MemoryBudget, kv_blocks, memory_table, splits
from sim.models.model import KV_CACHE_BYTES, Model

__all__ = ["Deployment", "MemoryBudget", "plan_deployment"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A target model (and a drafter) on `tensor_parallel_size` GPUs.

    Attributes:
        weight_dtype, kv_cache_dtype: resolved formats of the target ("auto" is gone).
        num_kv_blocks: size of the KV pool in blocks of `block_size` tokens.
        drafter_weight_dtype: resolved format of the drafter; "auto" only when there is no drafter.
        max_model_len: longest prompt + output; what fits where the user gave none.
        max_cudagraph_capture_size: largest batch in tokens that a CUDA graph exists for; 0 without graphs.
        expert_parallel: whether the GPUs hold whole experts.
    """

    target: Model
    drafter: Model | None
    gpu: Gpu
    tensor_parallel_size: int
    drafter_tensor_parallel_size: int
    weight_dtype: str
    kv_cache_dtype: str
    block_size: int
    num_kv_blocks: int
    memory: MemoryBudget
    drafter_weight_dtype: str = "auto"
    max_model_len: int | None = None
    max_cudagraph_capture_size: int = 0
    expert_parallel: bool = False

    @property
    def num_kv_tokens(self) -> int:
        """Capacity of the KV pool in tokens."""
        return self.num_kv_blocks * self.block_size


def plan_deployment(
    target: Model,
    drafter: Model | None,
    gpu: Gpu,
    *,
    tensor_parallel_size: int,
    drafter_tensor_parallel_size: int,
    weight_dtype: str,
    drafter_weight_dtype: str,
    kv_cache_dtype: str,
    block_size: int,
    gpu_memory_utilization: float,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int | None,
    num_gpu_blocks_override: int | None = None,
    activation_bytes: int | None = None,
    speculates: bool | None = None,
    drafter_shares_target: bool = False,
    enable_expert_parallel: bool = False,
) -> Deployment:
    """Lay the models out on the GPUs and size the KV pool. Arguments are vLLM's engine arguments, with these remarks.

    `drafter_tensor_parallel_size` is 1 (the whole drafter on every GPU) or the target's. A dtype "auto" is the
    checkpoint's own. `max_model_len=None` takes the model's own limit, or what fits where that is less.
    `num_gpu_blocks_override` pins the KV blocks; then only the weights have to fit, as in vLLM.
    `activation_bytes` pins the activation peak, which is `activation_peak_bytes` by default. `speculates` says whether
    drafts are verified, for which vLLM reserves memory even without a drafter network; by default when there is one.
    `drafter_shares_target` says that the drafter is a part of the target and takes no memory of its own.

    Raises:
        ScenarioError: unknown formats, or parallel sizes that do not divide the models.
        CapacityError: no room for the weights, or for the KV of one request of `max_model_len` tokens.
    """
    layout = Layout(
        target, drafter, gpu, tensor_parallel_size, drafter_tensor_parallel_size, weight_dtype, drafter_weight_dtype,
        kv_cache_dtype, block_size, gpu_memory_utilization, max_num_batched_tokens, max_num_seqs, activation_bytes,
        drafter is not None if speculates is None else speculates, drafter_shares_target, enable_expert_parallel,
    )  # fmt: skip
    _check_arguments(layout, max_model_len)
    memory = layout.budget()
    num_blocks = num_gpu_blocks_override
    if num_blocks is None:
        num_blocks = kv_blocks(memory.kv_pool, block_size, memory.kv_bytes_per_token)
        _check_capacity(layout, memory, num_blocks, max_model_len)
    else:
        memory = _pinned(layout, memory, num_blocks)
        _check_pinned(num_blocks * block_size, max_model_len)
    return _deployment(layout, memory, num_blocks, max_model_len)


def _deployment(layout: Layout, memory: MemoryBudget, num_blocks: int, max_model_len: int | None) -> Deployment:
    target, drafter, capacity = layout.target, layout.drafter, num_blocks * layout.block_size
    dtype, kv_dtype = target.resolve_weight_dtype(layout.weight_dtype), layout.kv_cache_dtype
    if kv_dtype == "auto":
        kv_dtype = "fp16" if dtype == "fp16" else "bf16"
    return Deployment(
        target, drafter, layout.gpu, layout.tensor_parallel_size, layout.drafter_tensor_parallel_size, dtype, kv_dtype,
        layout.block_size, num_blocks, memory,
        "auto" if drafter is None else drafter.resolve_weight_dtype(layout.drafter_weight_dtype),
        max_model_len or min(target.max_model_len or capacity, capacity), expert_parallel=layout.expert_parallel,
    )  # fmt: skip


def _check_arguments(layout: Layout, max_model_len: int | None) -> None:
    target, drafter, utilization = layout.target, layout.drafter, layout.gpu_memory_utilization
    if layout.kv_cache_dtype not in KV_CACHE_BYTES:
        raise ScenarioError(f"unknown kv_cache_dtype {layout.kv_cache_dtype!r}; allowed: {', '.join(KV_CACHE_BYTES)}")
    if not 0 < utilization <= 1:
        raise ScenarioError(f"gpu_memory_utilization {utilization} must be above 0 and at most 1")
    if max_model_len and target.max_model_len and max_model_len > target.max_model_len:
        raise ScenarioError(
            f"max_model_len {max_model_len} exceeds the {target.max_model_len} tokens that {target.name} supports"
        )
    if layout.expert_parallel and not target.experts:
        raise ScenarioError(f"enable_expert_parallel: {target.name} is dense: it has no experts to spread")
    _check_split(target, layout.tensor_parallel_size, "tensor_parallel_size", layout.expert_parallel)
    if drafter is None:
        return
    if layout.drafter_tensor_parallel_size not in (1, layout.tensor_parallel_size):
        raise ScenarioError(
            f"draft_tensor_parallel_size {layout.drafter_tensor_parallel_size} must be 1 or tensor_parallel_size "
            f"({layout.tensor_parallel_size}): engines know no other layout"
        )
    _check_split(drafter, layout.drafter_tensor_parallel_size, "draft_tensor_parallel_size", layout.expert_parallel)


def _check_pinned(kv_tokens: int, max_model_len: int | None) -> None:
    """Like vLLM, refuse a KV pool that cannot hold one request of `max_model_len` tokens."""
    if max_model_len and kv_tokens < max_model_len:
        raise CapacityError(
            f"num_gpu_blocks_override gives {kv_tokens:,} KV tokens, fewer than one request of max_model_len "
            f"{max_model_len:,}; raise it, or set engine.max_model_len to {kv_tokens} or less"
        )


def _check_split(model: Model, tp: int, key: str, expert_parallel: bool) -> None:
    if tp >= 1 and splits(model, tp, expert_parallel):
        return
    whole = expert_parallel and model.experts > 0
    allowed = ", ".join(str(n) for n in range(1, 33) if splits(model, n, expert_parallel))
    parts = f"heads and widths; a whole expert for each GPU, of {model.experts}" if whole else "heads and MLP width"
    raise ScenarioError(f"{key} {tp} does not divide {model.name} ({parts}); allowed: {allowed}")


def _pinned(layout: Layout, memory: MemoryBudget, num_blocks: int) -> MemoryBudget:
    if memory.target_weights + memory.drafter_weights > memory.total:
        raise CapacityError(_message(layout, memory, "the weights do not fit", 0))
    return replace(memory, kv_pool=num_blocks * layout.block_size * memory.kv_bytes_per_token)


def _check_capacity(layout: Layout, memory: MemoryBudget, num_blocks: int, max_model_len: int | None) -> None:
    """The engine refuses to start when the pool cannot hold one request of `max_model_len`; one block if not given."""
    needed_blocks = -(-(max_model_len or 1) // layout.block_size)
    if num_blocks >= needed_blocks:
        return
    what = f"the KV of one request of {max_model_len} tokens does not fit" if max_model_len else "not one KV block fits"
    needed_tokens = needed_blocks * layout.block_size
    raise CapacityError(_message(layout, memory, what if memory.kv_pool > 0 else "no room for KV", needed_tokens))


def _message(layout: Layout, memory: MemoryBudget, what: str, needed_tokens: int) -> str:
    drafter = f" with {layout.drafter.name}" if layout.drafter else ""
    head = f"{layout.target.name}{drafter} on {layout.tensor_parallel_size} x {layout.gpu.name}: {what}"
    table = memory_table(memory, needed_tokens * memory.kv_bytes_per_token)
    return f"{head}. Memory of each GPU:\n{table}\n{_hint(layout, needed_tokens)}"


def _hint(layout: Layout, needed_tokens: int) -> str:
    """Single changes that would make it fit: the smallest group, another format, more of the memory, less context."""
    larger = [layout.on(tp) for tp in (2, 4, 8, 16, 32) if tp > layout.tensor_parallel_size]
    changes = {f"tensor_parallel_size: {other.tensor_parallel_size}": other for other in larger if other.splits()}
    if layout.gpu.fp8:
        changes["weight_dtype: fp8"] = replace(layout, weight_dtype="fp8")
    changes["gpu_memory_utilization: 0.95"] = replace(layout, gpu_memory_utilization=0.95)
    fits = [text for text, other in changes.items() if other.kv_tokens() >= max(1, needed_tokens)]
    fits = [text for text in fits if not text.startswith("tensor")] + [text for text in fits if "tensor" in text][:1]
    fits += [f"max_model_len: {tokens}"] if (tokens := layout.kv_tokens()) else []
    return (
        f"Any of these would fit: {', '.join(fits)}." if fits else "No single change of the engine's arguments helps."
    )
