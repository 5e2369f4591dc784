"""Where the bytes of one GPU go: weights, activations, graphs, and the rest for KV blocks. Used by `sim/deployment.py`.

The budget follows vLLM (`gpu_worker.determine_available_memory`): what is left of `gpu_memory_utilization` x memory
after target weights, drafter weights, the activation peak of a profiling pass, and a reserve becomes KV blocks.
"""

from dataclasses import dataclass, replace

from sim.hardware.gpu import Gpu
from sim.models.model import Model
from sim.units import format_bytes

#: CUDA context, workspaces and graph pools. A choice: vLLM logs 0.16 GiB outside PyTorch (pull request 12126), and
#: graph pools add 0.1 to 0.7 GiB (issue 27508: 660 MiB).
GRAPH_RESERVE_BYTES = 2**29

#: Bytes per (sampled row, vocabulary entry) at the sampler's peak: 16-bit logits 2, float32 copy 4, sorted copy 4, sort
#: indices 8, probabilities 4, masks 2. With a drafter vLLM profiles the rejection sampler with twice the rows of 16-bit
#: logits (`GPUModelRunner._dummy_sampler_run`): 2 x 2 more. Agrees with two recorded vLLM pools to 3 %
#: (tests/test_deployment.py).
SAMPLER_BYTES_PER_LOGIT = 24
REJECTION_BYTES_PER_LOGIT = 4

_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes on each GPU of the tensor-parallel group.

    Attributes:
        total: memory of the GPU.
        usable: `gpu_memory_utilization` x total.
        target_weights, drafter_weights: sharded over the group.
        activations: peak of a full-budget pass.
        graphs: CUDA context and graph pools.
        kv_pool: what is left for KV blocks; the size of the blocks themselves when their number is pinned.
        kv_bytes_per_token: target and drafter KV of one token, on this GPU.
    """

    total: int
    usable: int
    target_weights: int
    drafter_weights: int
    activations: int
    graphs: int
    kv_pool: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Models on GPUs, and the engine arguments that their memory depends on; named as in `plan_deployment`."""

    target: Model
    drafter: Model | None
    gpu: Gpu
    tensor_parallel_size: int
    drafter_tensor_parallel_size: int
    weight_dtype: str
    drafter_weight_dtype: str
    kv_cache_dtype: str
    block_size: int
    gpu_memory_utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int
    activation_bytes: int | None
    speculates: bool = False
    drafter_shares_target: bool = False
    expert_parallel: bool = False

    def budget(self) -> MemoryBudget:
        """Bytes by part; `kv_pool` is negative when the weights alone are too large."""
        drafter, tp, drafter_tp = self._own_drafter, self.tensor_parallel_size, self.drafter_tensor_parallel_size
        usable = int(self.gpu_memory_utilization * self.gpu.memory)
        weights = self.target.weight_bytes(self.weight_dtype, tp, self.expert_parallel)
        drafter_weights = 0
        if drafter is not None:
            drafter_weights = drafter.weight_bytes(self.drafter_weight_dtype, drafter_tp, self.expert_parallel)
        activations = self.activation_bytes
        if activations is None:
            activations = activation_peak_bytes(
                self.target, tp, self.max_num_batched_tokens, self.max_num_seqs,
                drafts=self.speculates, expert_parallel=self.expert_parallel,
            )  # fmt: skip
        per_token = self.target.kv_bytes_per_token(self.kv_cache_dtype, tp)
        per_token += 0 if drafter is None else drafter.kv_bytes_per_token(self.kv_cache_dtype, drafter_tp)
        left = usable - weights - drafter_weights - activations - GRAPH_RESERVE_BYTES
        return MemoryBudget(
            self.gpu.memory, usable, weights, drafter_weights, activations, GRAPH_RESERVE_BYTES, left, per_token
        )

    @property
    def _own_drafter(self) -> Model | None:
        """The drafter, where it has weights and KV beside the target's."""
        return None if self.drafter_shares_target else self.drafter

    def kv_tokens(self) -> int:
        """Tokens that the KV pool holds, in whole blocks."""
        memory = self.budget()
        return kv_blocks(memory.kv_pool, self.block_size, memory.kv_bytes_per_token) * self.block_size

    def on(self, tp: int) -> "Layout":
        """The same on `tp` GPUs; a drafter that is split stays so."""
        drafter_tp = 1 if self.drafter_tensor_parallel_size == 1 else tp
        return replace(self, tensor_parallel_size=tp, drafter_tensor_parallel_size=drafter_tp)

    def splits(self) -> bool:
        """Whether the parallel sizes divide both models."""
        whole, drafter = self.expert_parallel, self.drafter
        drafter_fits = drafter is None or splits(drafter, self.drafter_tensor_parallel_size, whole)
        return drafter_fits and splits(self.target, self.tensor_parallel_size, whole)


def splits(model: Model, tp: int, expert_parallel: bool = False) -> bool:
    """Whether `tp` GPUs can share a model: heads and MLP widths divide; fewer KV heads than GPUs are copied.

    With `expert_parallel` experts stay whole, and there is at least one for every GPU; they need not divide (vLLM's
    `determine_expert_map` gives some GPUs one more).
    """
    heads = model.is_mla or model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    experts = model.moe_ffn % tp == 0
    if expert_parallel and model.experts:
        experts = model.experts >= tp and model.shared_experts * model.shared_ffn % tp == 0
    return model.q_heads % tp == 0 and heads and model.ffn % tp == 0 and experts


def kv_blocks(pool_bytes: int, block_size: int, bytes_per_token: int) -> int:
    """Whole KV blocks of `block_size` tokens in a pool; 0 when there is no pool."""
    return max(0, pool_bytes // (block_size * bytes_per_token))


def activation_peak_bytes(
    target: Model,
    tp: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    *,
    drafts: bool = False,
    expert_parallel: bool = False,
) -> int:
    """Activation peak of vLLM's profiling pass on one of `tp` GPUs: a full token budget, then a full batch sampled.

    Residual stream and hidden states stay for the whole pass; on top comes the largest of attention (QKV and output),
    the MLP (gate, up and their product; every routed expert's tokens at once, in full width and for the experts of all
    GPUs under expert parallelism) and the sampler, whose logits are gathered on every GPU.
    """
    attention = 2 * (target.q_heads + target.kv_heads) * target.head_dim // tp
    mlp = 3 * max(target.ffn, target.shared_experts * target.shared_ffn) // tp
    experts = target.top_k * (3 * target.moe_ffn // (1 if expert_parallel else tp) + target.hidden)
    widest = max(attention, mlp, experts) * max_num_batched_tokens * _ACTIVATION_BYTES
    per_logit = SAMPLER_BYTES_PER_LOGIT + (REJECTION_BYTES_PER_LOGIT if drafts else 0)
    sampler = min(max_num_seqs, max_num_batched_tokens) * target.vocab * per_logit
    return 2 * max_num_batched_tokens * target.hidden * _ACTIVATION_BYTES + max(widest, sampler)


def memory_table(memory: MemoryBudget, needed: int | None = None) -> str:
    """The budget as a small table, one line per part, in GiB; `needed` adds the KV bytes that one request must have."""
    rows = [
        ("GPU total", memory.total),
        ("usable", memory.usable),
        ("target weights", memory.target_weights),
        ("drafter weights", memory.drafter_weights),
        ("activations", memory.activations),
        ("context and graphs", memory.graphs),
        ("left for KV", memory.kv_pool),
    ]
    rows += [("needed for KV", needed)] if needed is not None else []
    return "\n".join(f"  {name:<20}{format_bytes(size):>12}" for name, size in rows)
