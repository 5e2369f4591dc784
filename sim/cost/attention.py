"""Attention by kernel class: reading the KV cache, multiplying scores and values.

Equations and what is measured: docs/background/cost-model.md, "Attention".

All classes read a request's KV once per pass whatever its number of new tokens (FlashAttention-2 more often when the
cache cannot hold it), and take the larger of memory and compute time. `packed` kernels (FlashAttention-3, Blackwell)
spread any batch over the GPU; `fa2` kernels lose their decode path for the whole batch as soon as one sequence has
several new tokens, and then every (sequence, query head) is one serial thread block. A sliding window caps the KV of
each sequence by its mean, since a load holds sums only.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sim.cost.base import AttentionLoad
from sim.cost.smooth import Terms, doublings, larger, round_up, smaller, smooth_max
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
        block_s, doubling_s: per sequence, and per doubling of the mean context beyond 64 tokens, per layer.
        sequence_s: per sequence with 16 or more new tokens, per layer; proportionally less for shorter queries.
        kv_token_s: reading the KV of one token, per layer.
        pair_s: one query-key pair of all heads, per layer.
        tile: query rows that a tile is padded to; a tile holds the query heads of one KV head.
        padded: rows computed per row needed when every sequence has one new token.
        activation_s: queries, keys, values and outputs of one new token in the extend class, per layer.
    """

    layers: int
    decode_launch_s: float
    extend_launch_s: float
    block_s: float
    doubling_s: float
    sequence_s: float
    kv_token_s: float
    pair_s: float
    tile: int
    padded: float
    activation_s: float

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time of one pass."""
        return self.extending(decode, extend) if extend.num_seqs else self.decoding(decode)

    def decoding(self, load: AttentionLoad) -> Terms:
        """Time when every sequence has one new token."""
        layers, kv = self.layers, load.kv_tokens_read
        memory, compute = layers * kv * self.kv_token_s, layers * kv * self.padded * self.pair_s
        return Terms(layers * self.decode_fixed_s(load.num_seqs, kv) + larger(memory, compute), memory, compute)

    def decode_fixed_s(self, num_seqs: float, kv_tokens: float) -> float:
        """Launch, one block per sequence, splitting long contexts; one layer."""
        splits = self.doubling_s * doublings(kv_tokens / (64.0 * num_seqs))
        return self.decode_launch_s + num_seqs * self.block_s + splits

    def extending(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time with several new tokens: tiles hold at least `tile` rows, so a few cost no more compute than one."""
        layers, padded, kv = self.layers, self.padded, decode.kv_tokens_read + extend.kv_tokens_read
        seqs, tokens, extend_kv, extend_pairs = extend
        pairs = decode.kv_tokens_read * padded + larger(extend_pairs + (self.tile - 1) * tokens, extend_kv * padded)
        long_queries = smaller(seqs, tokens / 16.0)
        launch = self.extend_launch_s + long_queries * self.sequence_s
        launch = larger(launch, self.cached_fixed_s(decode, extend)) + tokens * self.activation_s
        memory, compute = layers * kv * self.kv_token_s, layers * pairs * self.pair_s
        return Terms(layers * launch + larger(memory, compute), memory, compute)

    def cached_fixed_s(self, decode: AttentionLoad, extend: AttentionLoad) -> float:
        """What the decode path would take before it reads any KV; nothing for a prompt that has no KV yet."""
        cached = smaller(extend.kv_tokens_read - extend.num_tokens, 1.0)
        seqs, kv = decode.num_seqs + cached * extend.num_seqs, decode.kv_tokens_read + cached * extend.kv_tokens_read
        return smaller(seqs, 1.0) * self.decode_fixed_s(larger(seqs, 1.0), kv)


@dataclass(frozen=True, slots=True)
class Fa2Attention:
    """Packed and split only while every sequence has one new token; serial thread blocks otherwise.

    One block computes `block_rows` query rows of one head over all keys of its sequence, in waves of one block per
    multiprocessor. Heads that share a KV head run far apart when the batch fills the GPU, and read the KV again when it
    no longer fits the L2 cache.

    Attributes:
        packed: the decode path; `activation_s` and `kv_token_s` hold for several new tokens too.
        launch_s, wave_s: fixed time, and starting one wave of blocks, per layer.
        block_s: one serial thread block per KV token.
        heads, group: query heads, and query heads that share a KV head.
        sms: multiprocessors.
        cache_tokens: KV tokens of one KV head that fit the L2 cache.
        smoothness: of the maximum of serial blocks and memory.
        block_rows: query rows of one thread block.
    """

    packed: PackedAttention
    launch_s: float
    wave_s: float
    block_s: float
    heads: int
    group: float
    sms: int
    cache_tokens: float
    smoothness: float | None
    block_rows: int = 64

    def terms(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Time of one pass."""
        return self.extending(decode, extend) if extend.num_seqs else self.packed.decoding(decode)

    def extending(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        """Serial blocks against memory; never less than the decode path takes to read the same KV."""
        packed, layers = self.packed, self.packed.layers
        kv = decode.kv_tokens_read + extend.kv_tokens_read
        serial, waves = self._serial(decode, extend)
        memory = kv * self._reads(decode.num_seqs + extend.num_seqs, kv) * packed.kv_token_s
        work = smooth_max(serial, memory, self.smoothness)
        seconds = larger(self.launch_s + waves * self.wave_s + work, packed.cached_fixed_s(decode, extend) + memory)
        seconds = seconds + extend.num_tokens * packed.activation_s
        return Terms(layers * seconds, layers * memory, layers * serial)

    def _serial(self, decode: AttentionLoad, extend: AttentionLoad) -> tuple[float, float]:
        """Time of all blocks over all multiprocessors, whole waves of each class, and the number of waves."""
        rows, (seqs, tokens, extend_kv, pairs) = self.block_rows, extend
        tiles = round_up(tokens / (rows * seqs))
        keys = larger(self._tiled_keys(extend, tiles), (pairs + 0.5 * (rows - 1) * tokens) / rows)
        per_sm = self.heads / self.sms
        serial = larger(
            (decode.kv_tokens_read + keys) * per_sm, round_up(seqs * tiles * per_sm) * keys / (seqs * tiles)
        )
        serial = larger(serial, extend_kv / seqs)
        mean = decode.kv_tokens_read / larger(decode.num_seqs, 1)
        serial = larger(serial, round_up(decode.num_seqs * per_sm) * mean)
        return serial * self.block_s, round_up((decode.num_seqs + seqs * tiles) * per_sm)

    def _tiled_keys(self, extend: AttentionLoad, tiles: float) -> float:
        """Keys that the tiles of equal sequences see: each tile all cached tokens and the new ones up to its end."""
        seqs, tokens, kv, _ = extend
        return tiles * (kv - tokens) + 0.5 * seqs * self.block_rows * tiles * (tiles - 1) + tokens

    def _reads(self, num_seqs: int, kv_tokens: int) -> float:
        """How often the KV is read: once while one KV head's share fits the L2, else by each group of heads in turn."""
        beyond = smaller(larger((kv_tokens / self.cache_tokens - 0.95) / 0.3, 0.0), 1.0)
        together = larger(self.sms / num_seqs, 1.0)
        return 1.0 + (larger(self.group / together, 1.0) - 1.0) * beyond


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


class AttentionShape(NamedTuple):
    """Attention of some layers on one GPU: how many layers, query heads, KV heads, and their width."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int


class AttentionFits(NamedTuple):
    """Fitted parameters that attention needs: decode with the KV format in use, extend, MLA."""

    decode: DecodeFit
    extend: ExtendFit
    mla: DecodeFit


def bind_attention(model: Model, tp: int, kv_dtype: str, gpu: Gpu, fits: AttentionFits) -> list[Attention]:
    """Attention of one GPU of `tp`: one entry for layers with full attention and one for windowed layers."""
    if model.is_mla:
        return [_bind_mla(model, tp, kv_dtype, gpu, fits)]
    kv_bytes, bound = KV_CACHE_BYTES[kv_dtype], list[Attention]()
    shape = AttentionShape(
        model.full_attention_layers, -(-model.q_heads // tp), -(-model.kv_heads // tp), model.head_dim
    )
    if shape.layers:
        bound.append(bind_gqa(shape, kv_bytes, gpu, fits.decode, fits.extend))
    if model.window_layers:
        windowed = bind_gqa(shape._replace(layers=model.window_layers), kv_bytes, gpu, fits.decode, fits.extend)
        bound.append(WindowedAttention(windowed, model.window))
    return bound


def bind_gqa(
    shape: AttentionShape, kv_bytes: int, gpu: Gpu, decode: DecodeFit, extend: ExtendFit
) -> PackedAttention | Fa2Attention:
    """Grouped-query attention with a KV cache of `kv_bytes` per element."""
    layers, heads, kv_heads, width = shape
    io_bytes = 0.0 if extend.activation_efficiency is None else 2.0 * (heads + kv_heads) * width * 2.0
    packed = PackedAttention(
        layers=layers,
        decode_launch_s=decode.launch_us * 1e-6,
        extend_launch_s=extend.launch_us * 1e-6,
        block_s=decode.block_us * 1e-6 * kv_heads / gpu.sms,
        doubling_s=decode.doubling_us * 1e-6,
        sequence_s=extend.sequence_us * 1e-6 * heads / gpu.sms,
        kv_token_s=2.0 * kv_heads * width * kv_bytes / _kv_bandwidth(gpu, decode),
        pair_s=4.0 * heads * width / (gpu.bf16 * extend.compute_efficiency),
        tile=extend.tile_rows,
        padded=_padding(heads / kv_heads, extend.tile_rows),
        activation_s=io_bytes / (gpu.memory_bandwidth * (extend.activation_efficiency or 1.0)),
    )
    return packed if extend.kernel == "packed" else _bind_fa2(packed, shape, kv_bytes, gpu, extend)


def _bind_fa2(
    packed: PackedAttention, shape: AttentionShape, kv_bytes: int, gpu: Gpu, extend: ExtendFit
) -> Fa2Attention:
    return Fa2Attention(
        packed=packed,
        launch_s=extend.launch_us * 1e-6,
        wave_s=extend.wave_us * 1e-6,
        block_s=extend.serial_ns_per_token * 1e-9 * shape.head_dim / 128.0,
        heads=shape.heads,
        group=shape.heads / shape.kv_heads,
        sms=gpu.sms,
        cache_tokens=gpu.l2 / (2.0 * shape.head_dim * kv_bytes),
        smoothness=extend.smoothness,
        block_rows=extend.tile_rows,
    )


def _bind_mla(model: Model, tp: int, kv_dtype: str, gpu: Gpu, fits: AttentionFits) -> Attention:
    """Absorbed form: every head attends to the same latent, copied to each GPU; 2 x latent + rope FLOPs a pair."""
    heads, latent = -(-model.q_heads // tp), model.kv_lora_rank + model.qk_rope_dim
    launch = fits.mla.launch_us * 1e-6
    return PackedAttention(
        layers=model.layers,
        decode_launch_s=launch,
        extend_launch_s=launch,
        block_s=fits.mla.block_us * 1e-6 / gpu.sms,
        doubling_s=fits.mla.doubling_us * 1e-6,
        sequence_s=0.0,
        kv_token_s=latent * KV_CACHE_BYTES[kv_dtype] / _kv_bandwidth(gpu, fits.mla),
        pair_s=2.0 * heads * (latent + model.kv_lora_rank) / (gpu.bf16 * fits.extend.compute_efficiency),
        tile=fits.extend.tile_rows,
        padded=_padding(heads, fits.extend.tile_rows),
        activation_s=0.0,
    )


def _padding(rows: float, tile: int) -> float:
    return -(-rows // tile) * tile / rows


def _kv_bandwidth(gpu: Gpu, fit: DecodeFit) -> float:
    return gpu.memory_bandwidth * fit.kv_efficiency
