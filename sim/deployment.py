"""Model x GPUs x parallelism x dtypes -> memory budget, KV blocks, feasibility."""

from dataclasses import dataclass

from sim.hardware.gpu import Gpu
from sim.models.model import Model


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes on each GPU of the tensor-parallel group.

    Attributes:
        total: memory of the GPU.
        usable: `gpu_memory_utilization` x total.
        target_weights, drafter_weights: sharded over the group.
        activations: peak of a full-budget pass.
        graphs: CUDA context and graph pools.
        kv_pool: what is left for KV blocks.
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
class Deployment:
    """A target model (and a drafter) on `tensor_parallel_size` GPUs.

    Attributes:
        weight_dtype, kv_cache_dtype: resolved formats of the target ("auto" is gone).
        num_kv_blocks: size of the KV pool in blocks of `block_size` tokens.
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

    @property
    def num_kv_tokens(self) -> int:
        """Capacity of the KV pool in tokens."""
        return self.num_kv_blocks * self.block_size
