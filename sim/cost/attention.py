"""Attention by kernel class: reading the KV cache, multiplying scores and values.

Equations and what is measured: docs/background/cost-model.md, "Attention".

All classes read a request's KV once per pass whatever its number of new tokens, and take the larger of memory and
compute time. `packed` kernels (FlashAttention-3, Blackwell) spread any batch over the GPU; `fa2` kernels lose their
decode path for the whole batch as soon as one sequence has several new tokens, and then every (sequence, query head) is
one serial thread block. A sliding window caps the KV of each sequence by its mean, since a load holds sums only.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sim.cost.base import AttentionLoad
from sim.cost.smooth import Terms
from sim.hardware.gpu import Gpu
from sim.hardware.profile import DecodeFit, ExtendFit
from sim.models.model import KV_CACHE_BYTES, Model


class Attention(Protocol):
    """Attention of all layers that see the same context."""

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time of one pass; at least one of the loads is not empty."""
        ...


@dataclass(frozen=True, slots=True)
class PackedAttention:
    """Query heads of a group share one KV read; work is split over the whole GPU.

    Attributes:
        layers: layers with this attention.
        decode_launch_s, extend_launch_s: fixed time per layer, without and with several new tokens.
        kv_token_s: reading the KV of one token, per layer.
        pair_s: one query-key pair of all heads, per layer.
        tile: query rows that a tile is padded to; a tile holds the query heads of one KV head.
        padded: rows computed per row needed when every sequence has one new token.
        activation_s: queries, keys, values and outputs of one new token in the extend class, per layer.
    """

    layers: int
    decode_launch_s: float
    extend_launch_s: float
    kv_token_s: float
    pair_s: float
    tile: int
    padded: float
    activation_s: float

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time of one pass: tiles hold at least `tile` rows, so a few new tokens cost no more compute than one."""
        layers, padded, kv = self.layers, self.padded, decode.kv_tokens_read
        pairs = kv * padded
        seqs, tokens, extend_kv, extend_pairs = extend
        if seqs:
            launch = self.extend_launch_s + tokens * self.activation_s
            extend_pairs += (self.tile - 1) * tokens
            least = extend_kv * padded
            pairs += extend_pairs if extend_pairs > least else least
            kv += extend_kv
        else:
            launch = self.decode_launch_s
        memory, compute = layers * kv * self.kv_token_s, layers * pairs * self.pair_s
        return Terms(layers * launch + (memory if memory >= compute else compute), memory, compute)


@dataclass(frozen=True, slots=True)
class Fa2Attention:
    """Packed and split only while every sequence has one new token; serial thread blocks otherwise.

    Attributes:
        packed: the decode path and the roofline of the score and value products.
        block_s: one serial thread block per KV token.
        blocks_per_sequence: thread blocks of one sequence per multiprocessor: query heads / SMs.
        block_rows: query rows of one thread block.
    """

    packed: PackedAttention
    block_s: float
    blocks_per_sequence: float
    block_rows: int = 128

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """The serial time is that of all blocks over all multiprocessors, and never less than the longest one."""
        packed = self.packed.terms(decode, extend)
        if not extend.num_seqs:
            return packed
        tiled = (extend.pairs + 64.0 * extend.num_tokens) / self.block_rows
        per_sm = self.blocks_per_sequence * (decode.kv_tokens_read + max(extend.kv_tokens_read, tiled))
        longest = extend.kv_tokens_read / extend.num_seqs
        if decode.num_seqs:
            longest = max(longest, decode.kv_tokens_read / decode.num_seqs)
        serial = self.packed.layers * self.block_s * max(per_sm, longest)
        above = max(0.0, serial - max(packed.memory_s, packed.compute_s))
        return Terms(packed.seconds + above, packed.memory_s, max(packed.compute_s, serial))


@dataclass(frozen=True, slots=True)
class WindowedAttention:
    """Layers that see the last `window` tokens only."""

    inner: Attention
    window: int

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time of one pass with the loads capped."""
        return self.inner.terms(self._capped(decode), self._capped(extend))

    def _capped(self, load: AttentionLoad) -> AttentionLoad:
        seqs, tokens, kv, pairs = load
        if not seqs:
            return load
        reachable, visible = seqs * self.window + tokens, tokens * self.window
        return AttentionLoad(seqs, tokens, kv if kv < reachable else reachable, pairs if pairs < visible else visible)


class AttentionFits(NamedTuple):
    """Fitted parameters that attention needs: decode with the KV format in use, extend, MLA."""

    decode: DecodeFit
    extend: ExtendFit
    mla: DecodeFit


def bind_attention(model: Model, tp: int, kv_dtype: str, gpu: Gpu, fits: AttentionFits) -> list[Attention]:
    """Attention of one GPU of `tp`: one entry for layers with full attention and one for windowed layers."""
    if model.is_mla:
        return [_bind_mla(model, tp, kv_dtype, gpu, fits)]
    bound: list[Attention] = []
    if model.full_attention_layers:
        bound.append(_bind_gqa(model, model.full_attention_layers, tp, kv_dtype, gpu, fits))
    if model.window_layers:
        bound.append(WindowedAttention(_bind_gqa(model, model.window_layers, tp, kv_dtype, gpu, fits), model.window))
    return bound


def _bind_gqa(model: Model, layers: int, tp: int, kv_dtype: str, gpu: Gpu, fits: AttentionFits) -> Attention:
    kv_heads, heads, extend = -(-model.kv_heads // tp), -(-model.q_heads // tp), fits.extend
    io_bytes = 0.0 if extend.activation_efficiency is None else 2.0 * (heads + kv_heads) * model.head_dim * 2.0
    packed = PackedAttention(
        layers=layers,
        decode_launch_s=fits.decode.launch_us * 1e-6,
        # Never below decode, else verification would be cheaper than plain decode at short context.
        extend_launch_s=max(fits.decode.launch_us, extend.launch_us) * 1e-6,
        kv_token_s=2.0 * kv_heads * model.head_dim * KV_CACHE_BYTES[kv_dtype] / _kv_bandwidth(gpu, fits.decode),
        pair_s=4.0 * heads * model.head_dim / (gpu.bf16 * extend.compute_efficiency),
        tile=extend.tile_rows,
        padded=_padding(model.q_heads // model.kv_heads, extend.tile_rows),
        activation_s=io_bytes / (gpu.memory_bandwidth * (extend.activation_efficiency or 1.0)),
    )
    if extend.kernel == "packed":
        return packed
    return Fa2Attention(packed, extend.serial_ns_per_token * 1e-9, heads / gpu.sms)


def _bind_mla(model: Model, tp: int, kv_dtype: str, gpu: Gpu, fits: AttentionFits) -> Attention:
    """Absorbed form: every head attends to the same latent, copied to each GPU; 2 x latent + rope FLOPs a pair."""
    heads, latent = -(-model.q_heads // tp), model.kv_lora_rank + model.qk_rope_dim
    launch = fits.mla.launch_us * 1e-6
    return PackedAttention(
        layers=model.layers,
        decode_launch_s=launch,
        extend_launch_s=launch,
        kv_token_s=latent * KV_CACHE_BYTES[kv_dtype] / _kv_bandwidth(gpu, fits.mla),
        pair_s=2.0 * heads * (latent + model.kv_lora_rank) / (gpu.bf16 * fits.extend.compute_efficiency),
        tile=fits.extend.tile_rows,
        padded=_padding(heads, fits.extend.tile_rows),
        activation_s=0.0,
    )


def _padding(rows: int, tile: int) -> float:
    return -(-rows // tile) * tile / rows


def _kv_bandwidth(gpu: Gpu, fit: DecodeFit) -> float:
    return gpu.memory_bandwidth * fit.kv_efficiency
