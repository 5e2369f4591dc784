"""Attention of equal sequences in whole waves of thread blocks, for kernels that do not split what fills the GPU.

Terms and what is measured: docs/background/cost-model.md, "Attention".
"""

from dataclasses import dataclass
from typing import NamedTuple

from sim.cost.attention import Attention, Fa2Attention
from sim.cost.base import AttentionLoad
from sim.cost.smooth import Terms
from sim.hardware.gpu import Gpu
from sim.hardware.profile import DecodeFit
from sim.models.model import Model


class Waves(NamedTuple):
    """How thread blocks of equal work share a GPU.

    Attributes:
        resident: blocks that run at once.
        saturating: blocks that use all of the memory bandwidth; fewer leave some of it idle.
    """

    resident: int
    saturating: int

    def slowdown(self, blocks: int) -> float:
        """Time of `blocks` equal blocks over that of their bytes at full bandwidth; 1 while they all run at once.

        Fewer blocks than fit are split along the KV by the kernels, and the fitted efficiencies hold that.
        """
        whole, rest = divmod(blocks, self.resident)
        if not whole or not rest:
            return 1.0
        return (whole * self.resident + max(rest, self.saturating)) / blocks


@dataclass(frozen=True, slots=True)
class WavedAttention:
    """Attention with one thread block per sequence and KV head.

    Serial blocks of FlashAttention-2 with several new tokens count their own waves.
    """

    inner: Attention
    waves: Waves
    kv_heads: int

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time of one pass."""
        seconds, memory, compute = self.inner.terms(decode, extend)
        if extend.num_seqs and isinstance(self.inner, Fa2Attention):
            return Terms(seconds, memory, compute)
        idle = (self.waves.slowdown(self.kv_heads * (decode.num_seqs + extend.num_seqs)) - 1.0) * memory
        return Terms(seconds + idle, memory + idle, compute)


def in_waves(attention: list[Attention], model: Model, tp: int, gpu: Gpu, fit: DecodeFit) -> list[Attention]:
    """The same attention with waves; itself where the kernels of the GPU spread any batch, and for latent attention."""
    if fit.blocks_per_sm is None or fit.saturating_blocks is None or model.is_mla:
        return attention
    waves = Waves(fit.blocks_per_sm * gpu.sms, fit.saturating_blocks)
    return [WavedAttention(one, waves, -(-model.kv_heads // tp)) for one in attention]
