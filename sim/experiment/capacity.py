"""Where the memory of one GPU goes for an arm, and how many requests the KV pool holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.experiment.analytic import requests_that_fit
from sim.scenario.build import ArmSetup, resolved


@dataclass(frozen=True, slots=True)
class Capacity:
    """Decoding requests of one context that fit, look-ahead slots included; `max_num_seqs` is not applied."""

    context_tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory waterfall of one GPU of an arm: usable = weights + activations + graphs + KV pool.

    Attributes:
        kv_pool_pinned: `num_gpu_blocks_override` sets the pool, so that the parts need not add up.
        target_kv_bytes_per_token, drafter_kv_bytes_per_token: on this GPU.
        kv_capacity_tokens: whole blocks.
        lookahead_tokens: KV slots reserved per request for the next drafts.
        capacity: requests that fit at each context.
    """

    total_bytes: int
    usable_bytes: int
    target_weights_bytes: int
    drafter_weights_bytes: int
    activations_bytes: int
    graphs_bytes: int
    kv_pool_bytes: int
    kv_pool_pinned: bool
    target_kv_bytes_per_token: int
    drafter_kv_bytes_per_token: int
    kv_capacity_tokens: int
    lookahead_tokens: int
    max_num_seqs: int
    max_model_len: int
    capacity: tuple[Capacity, ...]


def memory_of(setup: ArmSetup, contexts: Sequence[int]) -> Memory:
    """The waterfall of an arm, and what fits at these contexts."""
    deployment, budget = setup.deployment, setup.deployment.memory
    target_kv = deployment.target.kv_bytes_per_token(deployment.kv_cache_dtype, deployment.tensor_parallel_size)
    return Memory(
        total_bytes=budget.total,
        usable_bytes=budget.usable,
        target_weights_bytes=budget.target_weights,
        drafter_weights_bytes=budget.drafter_weights,
        activations_bytes=budget.activations,
        graphs_bytes=budget.graphs,
        kv_pool_bytes=budget.kv_pool,
        kv_pool_pinned=setup.engine.num_gpu_blocks_override is not None,
        target_kv_bytes_per_token=target_kv,
        drafter_kv_bytes_per_token=budget.kv_bytes_per_token - target_kv,
        kv_capacity_tokens=deployment.num_kv_tokens,
        lookahead_tokens=setup.arm.speculative_config.lookahead_tokens,
        max_num_seqs=resolved(setup.engine.max_num_seqs),
        max_model_len=resolved(setup.engine.max_model_len),
        capacity=tuple(Capacity(context, requests_that_fit(setup, context)) for context in contexts),
    )
