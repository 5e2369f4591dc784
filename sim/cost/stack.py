"""One model on one tensor-parallel group, priced pass by pass: the roofline with all its op groups."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from sim.cost.attention import Attention, AttentionFits, bind_attention
from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass, PassPrice
from sim.cost.collectives import NO_COLLECTIVE, Collective, Group
from sim.cost.formats import Format, resolve_format
from sim.cost.gemm import GemmRate, bind_gemm, sum_terms
from sim.cost.moe import UNIFORM, Experts, Routing
from sim.cost.padding import NO_GRAPHS, CapturedGraphs
from sim.cost.smooth import Terms, smooth_max
from sim.cost.waves import in_waves
from sim.hardware.gpu import Gpu
from sim.hardware.profile import UNCERTAIN, ChosenProfile, ElementwiseFit, SamplerFit
from sim.models.model import Model
from sim.models.shapes import LinearShape

NOTHING = PassPrice(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)


class Elementwise(NamedTuple):
    """Norms, rotary embedding and activations of all layers."""

    fit: ElementwiseFit
    layers: int
    token_s: float

    def seconds(self, tokens: int) -> float:
        """Time of all layers for `tokens` rows."""
        traffic = self.fit.traffic_fraction * tokens * self.token_s
        return self.layers * smooth_max(self.fit.launch_us * 1e-6, traffic, self.fit.smoothness)


class Sampler(NamedTuple):
    """Sampling from the logits; `row_s` is one pass over the float32 logits of a row."""

    fit: SamplerFit
    row_s: float

    def seconds(self, rows: int) -> float:
        """Time of sampling `rows` rows."""
        fit = self.fit
        spilled = max(0, rows - fit.free_rows) * fit.logit_passes * self.row_s
        return (fit.launch_us + fit.per_row_us * rows) * 1e-6 + spilled


class Body(NamedTuple):
    """What depends on the number of tokens alone, in seconds."""

    linear: float
    collective: float
    elementwise: float
    memory_s: float
    compute_s: float


class Launches(NamedTuple):
    """Fixed times of the kernels of all layers by op group, in seconds."""

    linear: float
    attention: float
    collective: float
    elementwise: float


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The op groups of one model, bound to its GPUs."""

    gemms: list[GemmRate]
    experts: Experts
    lm_head: GemmRate
    sampler: Sampler
    attention: list[Attention]
    all_reduce: Collective
    logits_gather: Collective
    elementwise: Elementwise
    graphs: CapturedGraphs = NO_GRAPHS

    def launches(self, share: float) -> Launches:
        """A share of the fixed times of the kernels, which a pass of one token over one cached token shows."""
        one, experts = AttentionLoad(1, 1, 2, 2), self.experts
        gemms = sum(gemm.layers * gemm.launch_s for gemm in self.gemms)
        return Launches(
            linear=share * (gemms + experts.shape.layers * experts.fit.launch_us * 1e-6),
            attention=share * sum(part.terms(one, NO_ATTENTION).seconds for part in self.attention),
            collective=share * self.all_reduce.seconds(1),
            elementwise=share * self.elementwise.seconds(1),
        )


class Head(NamedTuple):
    """What depends on the rows through the LM head alone, in seconds; `engine` is what the engine adds for them."""

    lm_head: float
    collective: float
    memory_s: float
    compute_s: float
    engine: float


class EngineCosts(NamedTuple):
    """What an engine adds to the kernels of a pass.

    Attributes:
        row_s: per row through the LM head.
        draft_token_s: per draft token verified.
        speculative_step_s: per pass that verifies drafts.
        kv_reads: how often attention reads the KV of sequences with several new tokens, in passes that verify drafts.
        time_scale: factor on all kernels.
        step_s: per pass.
        launch_overlap: share of the kernels' fixed times that is hidden.
        eager_layer_s, eager_triton_s: launching the kernels of a layer, and of its experts on top if Triton's.
        captured_tokens: passes with prompts of more tokens have no CUDA graph and take at least as long as launching
            all their kernels.
        expands_drafts: drafts are verified as sequences with one new token each.
    """

    row_s: float = 0.0
    draft_token_s: float = 0.0
    speculative_step_s: float = 0.0
    kv_reads: float = 1.0
    time_scale: float = 1.0
    step_s: float = 0.0
    launch_overlap: float = 0.0
    eager_layer_s: float = 0.0
    eager_triton_s: float = 0.0
    captured_tokens: int = 0
    expands_drafts: bool = False


KERNELS_ALONE = EngineCosts()


def _expanded(decode: AttentionLoad, extend: AttentionLoad) -> AttentionLoad:
    """Every new token as a sequence: it reads as many tokens as it forms query-key pairs."""
    seqs, tokens, kv, pairs = decode
    return AttentionLoad(seqs + extend.num_tokens, tokens + extend.num_tokens, kv + extend.pairs, pairs + extend.pairs)


class RooflineCost:
    """Prices passes of one model; what depends on token or row counts alone is computed once and remembered.

    Attributes:
        parts: the op groups.
        engine: what comes on top of the kernels.
    """

    __slots__ = ("_attention", "_bodies", "_eager_s", "_heads", "_hidden", "_kernels_only", "engine", "parts")

    def __init__(self, parts: ModelParts, engine: EngineCosts = KERNELS_ALONE) -> None:
        self.parts, self.engine = parts, engine
        self._kernels_only = engine == KERNELS_ALONE
        self._attention = parts.attention[0].terms if len(parts.attention) == 1 else self._all_attention
        layers, triton = parts.elementwise.layers, parts.experts.triton_layers
        self._eager_s = layers * engine.eager_layer_s + triton * engine.eager_triton_s
        self._hidden = parts.launches(engine.launch_overlap)
        self._bodies: dict[int, Body] = {}
        self._heads: dict[int, Head] = {}

    def price(self, forward: ForwardPass) -> PassPrice:
        """Time of the pass by op group; 0 tokens cost 0 seconds."""
        _, tokens, rows, drafts, decode, extend = forward
        if not tokens:
            return NOTHING
        linear, collective, elementwise, memory, compute = self._bodies.get(tokens) or self._body(tokens)
        head, gather, head_memory, head_compute, rows_s = self._heads.get(rows) or self._head(rows)
        attention, kv_memory, kv_compute = self._attention(decode, extend)
        bound = memory + head_memory + kv_memory >= compute + head_compute + kv_compute
        collective, fixed = collective + gather, elementwise + rows_s
        if not self._kernels_only:
            if drafts:
                fixed += self.engine.speculative_step_s + drafts * self.engine.draft_token_s
                attention = self._verification(decode, extend, drafts, attention)
            attention -= min(self._hidden.attention, self.engine.launch_overlap * attention)
            attention *= self.engine.time_scale
        seconds = linear + attention + head + collective + fixed
        if tokens > self.engine.captured_tokens and tokens > rows and seconds < self._eager_s:
            fixed, seconds = fixed + self._eager_s - seconds, self._eager_s
        return PassPrice(seconds, linear, attention, head, collective, fixed, bound)

    def _verification(self, decode: AttentionLoad, extend: AttentionLoad, drafts: int, seconds: float) -> float:
        """Attention of a pass that verifies drafts, as this engine runs it; `seconds` as the kernels alone would."""
        if self.engine.expands_drafts and extend.num_tokens - extend.num_seqs == drafts:
            return self._attention(_expanded(decode, extend), NO_ATTENTION).seconds
        if self.engine.kv_reads == 1.0:
            return seconds
        reads = round(extend.kv_tokens_read * self.engine.kv_reads)
        return self._attention(decode, extend._replace(kv_tokens_read=reads)).seconds

    def _body(self, tokens: int) -> Body:
        parts, scale, hidden = self.parts, self.engine.time_scale, self._hidden
        rows = parts.graphs.padded(tokens)
        linear, experts = sum_terms(parts.gemms, rows), parts.experts.terms(rows)
        self._bodies[tokens] = body = Body(
            linear=scale * (linear.seconds + experts.seconds - hidden.linear),
            collective=scale * (parts.all_reduce.seconds(rows) - hidden.collective),
            elementwise=scale * (parts.elementwise.seconds(rows) - hidden.elementwise) + self.engine.step_s,
            memory_s=linear.memory_s + experts.memory_s,
            compute_s=linear.compute_s + experts.compute_s,
        )
        return body

    def _head(self, rows: int) -> Head:
        head, scale = Head(0.0, 0.0, 0.0, 0.0, 0.0), self.engine.time_scale
        if rows:
            seconds, memory, compute = self.parts.lm_head.terms(rows)
            seconds += self.parts.sampler.seconds(rows)
            gather = self.parts.logits_gather.seconds(rows)
            head = Head(scale * seconds, scale * gather, memory, compute, rows * self.engine.row_s)
        self._heads[rows] = head
        return head

    def _all_attention(self, decode: AttentionLoad, extend: AttentionLoad) -> Terms:
        seconds = memory = compute = 0.0
        for part in self.parts.attention:
            one = part.terms(decode, extend)
            seconds, memory, compute = seconds + one.seconds, memory + one.memory_s, compute + one.compute_s
        return Terms(seconds, memory, compute)


@dataclass(frozen=True, slots=True)
class Stack:
    """GPUs, their fitted parameters and the numeric formats: everything but the model's shape."""

    gpu: Gpu
    chosen: ChosenProfile
    tensor_parallel_size: int
    weight_dtype: str
    kv_cache_dtype: str
    routing: Routing = UNIFORM
    graphs: CapturedGraphs = NO_GRAPHS
    expert_parallel: bool = False
    replicates_lm_head: bool = False
    counts_waves: bool = False

    def bind(self, model: Model) -> ModelParts:
        """All op groups of `model`."""
        tp, gpu, chosen = self.tensor_parallel_size, self.gpu, self.chosen
        sections = chosen.sections()
        kv_key = "fp8" if self.kv_cache_dtype == "fp8" else "bf16"
        group = Group(tp, gpu, chosen)
        fits = AttentionFits(chosen.decode_attention(kv_key), sections.extend_attention, sections.mla)
        attention = bind_attention(model, tp, self.kv_cache_dtype, gpu, fits)
        shares_head = tp > 1 and not self.replicates_lm_head
        return ModelParts(
            gemms=[self._gemm(model, shape) for shape in model.linear_shapes(tp)],
            experts=self._experts(model),
            lm_head=self._gemm(model, model.lm_head_shape(tp if shares_head else 1)),
            sampler=Sampler(sections.sampler, 4.0 * model.vocab / gpu.memory_bandwidth),
            attention=in_waves(attention, model, tp, gpu, fits.decode) if self.counts_waves else attention,
            all_reduce=group.all_reduces(2 * model.layers, 2.0 * model.hidden),
            logits_gather=group.exchanges("all_gather", 1, 2.0 * model.vocab) if shares_head else NO_COLLECTIVE,
            elementwise=Elementwise(sections.elementwise, model.layers, self._traffic(model) / gpu.memory_bandwidth),
            graphs=self.graphs,
        )

    def bind_intake(self, model: Model) -> ModelParts:
        """What a drafter does once with every token of the target's pass: `Model.intake_shapes`, nothing else."""
        parts = self.bind(model)
        return replace(
            parts,
            gemms=[self._gemm(model, shape) for shape in model.intake_shapes(self.tensor_parallel_size)],
            experts=replace(parts.experts, shape=parts.experts.shape._replace(layers=0)),
            attention=[],
            all_reduce=NO_COLLECTIVE,
            elementwise=parts.elementwise._replace(layers=0),
        )

    def relative_error(self, model: Model) -> float:
        """One-sigma error of step times: the profile's, or 25 % for borrowed formats, experts and MLA."""
        fmt = self._format(model, "expert" if model.experts else "qkv")
        if model.experts or model.is_mla or not fmt.fitted:
            return UNCERTAIN
        return self.chosen.linear(fmt.key)[1]

    def _format(self, model: Model, matrix: str) -> Format:
        wide = model.bytes_per_weight(matrix, self.weight_dtype) == 2.0
        return resolve_format("bf16" if wide else model.resolve_weight_dtype(self.weight_dtype), self.gpu)

    def _gemm(self, model: Model, shape: LinearShape) -> GemmRate:
        # Quantised checkpoints keep the LM head in 16 bits, as `Model.weight_bytes` does.
        fmt = resolve_format("bf16", self.gpu) if shape.name == "lm_head" else self._format(model, shape.name)
        return bind_gemm(shape, fmt, self.chosen.linear(fmt.key)[0], self.gpu.memory_bandwidth)

    def _experts(self, model: Model) -> Experts:
        fmt = self._format(model, "expert")
        fit = self.chosen.moe("weight_only" if fmt.weight_only else fmt.key)
        shape = model.expert_shape(self.tensor_parallel_size, self.expert_parallel)
        num_gpus = self.tensor_parallel_size if self.expert_parallel else 1
        return Experts(shape, fmt, fit, self.gpu.memory_bandwidth, self.routing, num_gpus)

    def _traffic(self, model: Model) -> float:
        """Bytes per token and layer: two norms with residual, rotary queries and keys, gated activation; 16 bits."""
        tp = self.tensor_parallel_size
        width = model.ffn or model.top_k * model.moe_ffn + model.shared_experts * model.shared_ffn
        rotary = (model.q_heads + model.kv_heads) * model.head_dim / tp
        return 2.0 * (8.0 * model.hidden + 2.0 * rotary + 3.0 * width / tp)
