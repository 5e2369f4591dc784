"""Shapes of language models: parameters, FLOPs and KV bytes follow from them. Catalogue data: `sim/models/data/*.yaml`."""

from typing import Literal

from pydantic import Field

from sim.spec import Spec
from sim.units import PositiveCount

WeightDtype = Literal["bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4"]
KvCacheDtype = Literal["auto", "bf16", "fp16", "fp8"]

#: Bytes per weight, scales included where the format has them (nvfp4, mxfp4: one scale per block).
WEIGHT_BYTES: dict[str, float] = {
    "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.53125, "nvfp4": 0.5625, "mxfp4": 0.53125,
}  # fmt: skip


class Model(Spec):
    """A decoder-only transformer. Zero means "has none" for the mixture-of-experts, MLA and window fields.

    `dense_layers` of the `layers` have a dense MLP of width `ffn`; the others have `experts` routed experts of width
    `moe_ffn` (top `top_k` active) plus `shared_experts` of width `shared_ffn`. With `kv_lora_rank` > 0 attention is
    multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). With `window` > 0 every `full_attn_every`-th layer has
    full attention and the others a sliding window.
    """

    name: str
    layers: PositiveCount
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
    extra_linear_parameters: int = Field(0, ge=0)
    max_model_len: PositiveCount | None = None
    source: str
