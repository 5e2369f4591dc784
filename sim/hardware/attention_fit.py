"""Fitted parameters of attention kernels: sections of a profile."""

from typing import Literal

from pydantic import Field

from sim.hardware.step_fit import Fit


class DecodeFit(Fit):
    """t = launch + block B Hk/SMs + doubling log2(1 + Hk sum(context)/64) + KV bytes/(BW e_kv), per layer.

    Attributes:
        launch_us: fixed.
        kv_efficiency: of memory bandwidth.
        block_us: one sequence and KV head (MLA: query head) on one multiprocessor.
        doubling_us: each doubling of the KV beyond 64 tokens of one head: splitting it and combining the parts.
        l2_speedup: how much faster KV that fits the L2 cache was read, where a benchmark read it again and again; tells
            such rows of a table apart and plays no part in a server, whose layers evict one another.
        compute_efficiency: MLA only: of the score products; none: as several new tokens reach.
        blocks_per_sm: thread blocks that a multiprocessor runs at once, where kernels run equal sequences in waves of
            them; none: kernels that spread any batch, or not known.
        saturating_blocks: blocks that use all of the memory bandwidth.
    """

    launch_us: float = Field(ge=0)
    kv_efficiency: float = Field(gt=0)
    block_us: float = Field(0.0, ge=0)
    doubling_us: float = Field(0.0, ge=0)
    l2_speedup: float = Field(1.0, ge=1)
    compute_efficiency: float | None = Field(None, gt=0)
    blocks_per_sm: int | None = Field(None, ge=1)
    saturating_blocks: int | None = Field(None, ge=1)


class ExtendFit(Fit):
    """Attention with several new tokens per sequence, by kernel class.

    Attributes:
        kernel: `packed` (FlashAttention-3, Blackwell decode kernels: query heads share a KV read, KV is split over the
            GPU) or `fa2` (FlashAttention-2 varlen: each sequence and query head is one serial thread block).
        launch_us: per layer.
        compute_efficiency: of the score and value products (packed; fa2 computes inside its serial blocks).
        activation_efficiency: of bandwidth, for queries, keys, values and outputs; none: not charged.
        sequence_us: packed: one sequence and query head on one multiprocessor; charged in full from 16 new tokens on,
            since the backends concerned send shorter queries to their decode kernel.
        serial_ns_per_token: fa2 only: time of one thread block per KV token.
        wave_us: fa2 only: starting one thread block on every multiprocessor.
        smoothness: fa2 only: of the maximum of serial blocks and memory.
        tile_rows: query rows that a tile is padded to.
    """

    kernel: Literal["packed", "fa2"]
    launch_us: float = Field(ge=0)
    compute_efficiency: float = Field(gt=0)
    activation_efficiency: float | None = Field(None, gt=0)
    sequence_us: float = Field(0.0, ge=0)
    serial_ns_per_token: float = Field(0.0, ge=0)
    wave_us: float = Field(0.0, ge=0)
    smoothness: float | None = Field(None, ge=1)
    tile_rows: int = Field(64, ge=1)
