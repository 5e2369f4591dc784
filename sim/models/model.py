"""Shapes of language models: parameters, FLOPs and KV bytes follow from them. Catalogue: `sim/models/data/*.yaml`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from sim.errors import ScenarioError
from sim.models.shapes import ExpertShape, LinearShape
from sim.spec import Seq, Spec
from sim.units import PositiveCount

WeightDtype = Literal["bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4"]
KvCacheDtype = Literal["auto", "bf16", "fp16", "fp8"]

#: Bytes per weight, scales included where the format has them (nvfp4, mxfp4: one scale per block).
WEIGHT_BYTES: dict[str, float] = {
    "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.53125, "nvfp4": 0.5625, "mxfp4": 0.53125,
}  # fmt: skip

#: Bytes per KV element; "auto" is the 16-bit activation format, as in vLLM, whatever the weights are.
KV_CACHE_BYTES: dict[str, int] = {"auto": 2, "bf16": 2, "fp16": 2, "fp8": 1}

#: Matrices that checkpoints keep in 16 bits whatever the format of the rest: the router, and EAGLE's `fc`.
_ALWAYS_16_BIT = frozenset({"router", "fc"})


class Model(Spec):
    """A decoder-only transformer. Zero means "has none" for the mixture-of-experts, MLA and window fields.

    `dense_layers` of the `layers` have a dense MLP of width `ffn`; the others have `experts` routed experts of width
    `moe_ffn` (top `top_k` active) plus `shared_experts` of width `shared_ffn`. With `kv_lora_rank` > 0 attention is
    multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). With `window` > 0 every `full_attn_every`-th layer has
    full attention and the others a sliding window.

    Attributes:
        layers: 0 only for heads that work on another model's hidden state (Medusa).
        has_lm_head: False when the head is another model's (EAGLE-1, MTP): computed per pass, not held in memory again.
        has_embedding: the same for the input embedding; a drafter's `vocab` is then the width of its LM head only.
        fc_in: input width of a projection to `hidden` before the first layer (EAGLE, MTP).
        attention_in: input width of the first layer's projections in attention; 0 means `hidden` (EAGLE-3: twice that).
        states_in: width of the target's states that a drafter takes in, projected to `hidden` once for every token of
            the target's pass, before the first pass of its own (EAGLE-3, DFlash).
        states_are_kv: keys and values of the context come from those states, in every layer (DFlash).
        extra_linear_parameters: further matrices of input width `hidden`, used once per pass.
        hf_ids: Hugging Face repositories with exactly this shape.
    """

    name: str
    layers: int = Field(ge=0)
    hidden: PositiveCount
    q_heads: PositiveCount
    kv_heads: PositiveCount
    head_dim: PositiveCount
    ffn: int = Field(0, ge=0)
    vocab: PositiveCount
    tied_embeddings: bool = False
    experts: int = Field(0, ge=0)
    top_k: int = Field(0, ge=0)
    moe_ffn: int = Field(0, ge=0)
    shared_experts: int = Field(0, ge=0)
    shared_ffn: int = Field(0, ge=0)
    dense_layers: int = Field(ge=0)
    kv_lora_rank: int = Field(0, ge=0)
    qk_rope_dim: int = Field(0, ge=0)
    qk_nope_dim: int = Field(0, ge=0)
    v_head_dim: int = Field(0, ge=0)
    q_lora_rank: int = Field(0, ge=0)
    window: int = Field(0, ge=0)
    full_attn_every: int = Field(1, ge=1)
    weight_dtype: WeightDtype = "bf16"
    mtp_layers: int = Field(0, ge=0)
    has_lm_head: bool = True
    has_embedding: bool = True
    fc_in: int = Field(0, ge=0)
    attention_in: int = Field(0, ge=0)
    states_in: int = Field(0, ge=0)
    states_are_kv: bool = False
    extra_linear_parameters: int = Field(0, ge=0)
    max_model_len: PositiveCount | None = None
    hf_ids: Seq[str] = ()
    source: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        rules = {
            f"kv_heads ({self.kv_heads}) must divide q_heads ({self.q_heads})": self.q_heads % self.kv_heads == 0,
            f"dense_layers ({self.dense_layers}) exceeds layers ({self.layers})": self.dense_layers <= self.layers,
            "layers with a dense MLP need ffn > 0": self.dense_layers == 0 or self.ffn > 0,
            "experts, top_k, moe_ffn and layers that are not dense go together": len(
                {bool(self.experts), bool(self.top_k), bool(self.moe_ffn), self.dense_layers < self.layers}
            ) == 1,
            f"top_k ({self.top_k}) exceeds experts ({self.experts})": self.top_k <= self.experts,
            "shared_experts and shared_ffn go together": bool(self.shared_experts) == bool(self.shared_ffn),
            "kv_lora_rank, qk_rope_dim, qk_nope_dim and v_head_dim go together": len(
                {bool(n) for n in (self.kv_lora_rank, self.qk_rope_dim, self.qk_nope_dim, self.v_head_dim)}
            ) == 1,
            "only heads without an embedding of their own have no layers": self.layers > 0 or not self.has_embedding,
            "full_attn_every > 1 needs a window": self.window > 0 or self.full_attn_every == 1,
            "states_are_kv needs states_in": self.states_in > 0 or not self.states_are_kv,
        }  # fmt: skip
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    @property
    def is_mla(self) -> bool:
        """Multi-head latent attention?"""
        return self.kv_lora_rank > 0

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers

    @property
    def full_attention_layers(self) -> int:
        """Layers whose attention sees the whole context."""
        return self.layers // self.full_attn_every if self.window else self.layers

    @property
    def window_layers(self) -> int:
        """Layers whose attention sees the last `window` tokens only."""
        return self.layers - self.full_attention_layers

    @property
    def num_parameters(self) -> int:
        """All weights that this model itself holds: projections, experts, embeddings, LM head and two norms a layer.

        Biases and query-key norms are left out (less than 0.01 %); multi-token-prediction layers are not counted.
        """
        return self._body_parameters(self.experts) + self._vocabulary_matrices * self.vocab * self.hidden

    @property
    def active_parameters(self) -> int:
        """Weights one token is multiplied with: `top_k` experts, LM head included, input embedding (a look-up) not."""
        return self._body_parameters(self.top_k) + self.vocab * self.hidden

    def _body_parameters(self, experts: int) -> int:
        linear = sum(shape.parameters for shape in (*self.linear_shapes(), *self._states_projection()))
        routed = self.expert_shape()
        return linear + routed.layers * experts * routed.parameters_per_expert + self._norm_parameters

    @property
    def _norm_parameters(self) -> int:
        return (2 * self.layers + 1) * self.hidden

    @property
    def _vocabulary_matrices(self) -> int:
        return int(self.has_embedding) + int(self.has_lm_head and not self.tied_embeddings)

    def linear_shapes(self, tp: int = 1) -> list[LinearShape]:
        """Every weight matrix of a pass on one of `tp` GPUs, routed experts and LM head excepted.

        Splits as vLLM does: columns of QKV, gate-up and MLA's b-projections, rows of O and down; MLA's a-projections,
        the router and `fc` are replicated.
        """
        return [shape for shape in self._attention_shapes(tp) + self._mlp_shapes(tp) if shape.layers and shape.n_out]

    def intake_shapes(self, tp: int = 1) -> list[LinearShape]:
        """What a drafter multiplies every token of the target's pass with, once per step; empty for other models.

        The projections to keys and values are rows of the QKV matrices of `linear_shapes`, used a second time here.
        """
        if not self.states_are_kv:
            return self._states_projection()
        outputs = self.kv_lora_rank + self.qk_rope_dim if self.is_mla else 2 * _share(self.kv_heads, tp) * self.head_dim
        return [*self._states_projection(), LinearShape("kv", outputs, self.hidden, self.layers)]

    def _states_projection(self) -> list[LinearShape]:
        return [LinearShape("fc", self.hidden, self.states_in, 1)] if self.states_in else []

    def _attention_shapes(self, tp: int) -> list[LinearShape]:
        heads, layers = _share(self.q_heads, tp), self.layers
        if not self.is_mla:
            qkv = (heads + 2 * _share(self.kv_heads, tp)) * self.head_dim
            return [*self._from_inputs("qkv", qkv), LinearShape("o", self.hidden, heads * self.head_dim, layers)]
        queries = heads * (self.qk_nope_dim + self.qk_rope_dim)
        q_projections = self._from_inputs("q", queries)
        if self.q_lora_rank:
            q_projections = self._from_inputs("q_a", self.q_lora_rank)
            q_projections += [LinearShape("q_b", queries, self.q_lora_rank, layers)]
        return [
            *q_projections,
            *self._from_inputs("kv_a", self.kv_lora_rank + self.qk_rope_dim),
            LinearShape("kv_b", heads * (self.qk_nope_dim + self.v_head_dim), self.kv_lora_rank, layers),
            LinearShape("o", self.hidden, heads * self.v_head_dim, layers),
        ]

    def _from_inputs(self, name: str, n_out: int) -> list[LinearShape]:
        """A projection of each layer's input, which is wider in the first layer of some drafters."""
        if not self.attention_in:
            return [LinearShape(name, n_out, self.hidden, self.layers)]
        rest = LinearShape(name, n_out, self.hidden, self.layers - 1)
        return [LinearShape(name, n_out, self.attention_in, 1), rest]

    def _mlp_shapes(self, tp: int) -> list[LinearShape]:
        dense, shared = _share(self.ffn, tp), _share(self.shared_experts * self.shared_ffn, tp)
        return [
            LinearShape("gate_up", 2 * dense, self.hidden, self.dense_layers),
            LinearShape("down", self.hidden, dense, self.dense_layers),
            LinearShape("router", self.experts, self.hidden, self.moe_layers),
            LinearShape("shared_gate_up", 2 * shared, self.hidden, self.moe_layers if shared else 0),
            LinearShape("shared_down", self.hidden, shared, self.moe_layers if shared else 0),
            LinearShape("fc", self.hidden, self.fc_in, 1 if self.fc_in else 0),
            LinearShape("extra", -(-self.extra_linear_parameters // self.hidden), self.hidden, 1),
        ]

    def expert_shape(self, tp: int = 1, expert_parallel: bool = False) -> ExpertShape:
        """The routed experts on one of `tp` GPUs; all zero layers for a dense model.

        With `expert_parallel` a GPU holds its share of the experts whole, the largest share where they do not divide.
        """
        width, held = (1, tp) if expert_parallel else (tp, 1)
        return ExpertShape(
            self.moe_layers, self.experts, self.top_k, self.hidden, _share(self.moe_ffn, width),
            _share(self.experts, held),
        )  # fmt: skip

    def lm_head_shape(self, tp: int = 1) -> LinearShape:
        """The LM head on one of `tp` GPUs, computed on verified rows only."""
        return LinearShape("lm_head", _share(self.vocab, tp), self.hidden, 1)

    def kv_bytes_per_token(self, kv_dtype: str = "auto", tp: int = 1) -> int:
        """KV bytes of one token on one of `tp` GPUs, over all layers (a window saves nothing here).

        KV heads are split, and copied where there are more GPUs than heads. MLA's latent is copied to every GPU.
        """
        elements = self.kv_lora_rank + self.qk_rope_dim
        if not self.is_mla:
            elements = 2 * _share(self.kv_heads, tp) * self.head_dim
        return self.layers * elements * KV_CACHE_BYTES[kv_dtype]

    def weight_bytes(self, dtype: str = "auto", tp: int = 1, expert_parallel: bool = False) -> int:
        """Weights in the memory of one of `tp` GPUs; embeddings, LM head, norms and routers stay in 16 bits."""
        shapes = (*self.linear_shapes(tp), *self._states_projection())
        linear = sum(shape.parameters * self.bytes_per_weight(shape.name, dtype) for shape in shapes)
        routed = self.expert_shape(tp, expert_parallel)
        experts = routed.layers * routed.held * routed.parameters_per_expert * self.bytes_per_weight("expert", dtype)
        vocabulary = self._vocabulary_matrices * _share(self.vocab, tp) * self.hidden
        return round(linear + experts) + 2 * (vocabulary + self._norm_parameters)

    def bytes_per_weight(self, matrix: str, dtype: str = "auto") -> float:
        """Bytes per weight of a matrix named as in `LinearShape`, or `expert`.

        MXFP4 checkpoints of mixtures of experts quantise the experts alone (gpt-oss: 13.8 GB for 20.9 B weights).
        """
        resolved = self.resolve_weight_dtype(dtype)
        kept = matrix in _ALWAYS_16_BIT or (resolved == "mxfp4" and self.experts > 0 and matrix != "expert")
        return 2.0 if kept else WEIGHT_BYTES[resolved]

    def resolve_weight_dtype(self, dtype: str = "auto") -> str:
        """`dtype`, or the checkpoint's own format for "auto".

        Raises:
            ScenarioError: not a known weight format.
        """
        if dtype not in ("auto", *WEIGHT_BYTES):
            raise ScenarioError(f"unknown weight_dtype {dtype!r}; allowed: auto, {', '.join(WEIGHT_BYTES)}")
        return self.weight_dtype if dtype == "auto" else dtype


def _share(size: int, tp: int) -> int:
    """What one of `tp` GPUs holds of `size` rows or heads; never less than one of them."""
    return -(-size // tp)
