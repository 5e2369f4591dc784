"""Reads a Hugging Face `config.json` into a `Model`: Llama-like, mixture-of-experts and MLA decoders.

What cannot be simulated faithfully (encoders, state-space layers, linear or sparse attention) is refused by name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.errors import Problem, ScenarioError
from sim.models.hf_fields import Fields
from sim.models.hf_quantization import weight_dtype
from sim.models.model import Model

#: Keys (with a value that is neither null, 0 nor false) of architectures whose costs the model does not describe.
_UNSUPPORTED = {
    "is_encoder_decoder": "encoder-decoder models",
    "index_topk": "sparse attention (DeepSeek-V3.2)",
    "attention_chunk_size": "chunked attention (Llama 4)",
    "linear_num_key_heads": "linear attention (Qwen3-Next)",
    "linear_attn_config": "linear attention (Kimi Linear)",
    "attn_type_list": "linear attention (MiniMax-01)",
    "mamba_d_state": "state-space layers",
    "ssm_cfg": "state-space layers",
    "state_size": "state-space layers",
    "hybrid_override_pattern": "state-space layers",
    "attention_layers_block_type": "mixed layer types",
}
_TIED_BY_DEFAULT = ("gemma", "cohere")
_EXPERT_MLP_IN_INTERMEDIATE_SIZE = ("mixtral", "gpt_oss", "minimax", "phimoe")


def read_hf_config(path: Path) -> Model:
    """The model that a `config.json` describes; named after its folder.

    Raises:
        ScenarioError: unreadable file, malformed JSON (with line and column), missing keys (all of them), or an
            architecture that cannot be simulated.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError([Problem(str(path), "model", f"cannot be read: {error.strerror}")]) from error
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise ScenarioError([Problem(where, "model", f"malformed JSON: {error.msg}")]) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ScenarioError([Problem(str(path), "model", "is not a JSON text file")]) from error
    if not isinstance(config, dict):
        raise ScenarioError([Problem(str(path), "model", "expected a JSON object, as in a Hugging Face config.json")])
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    return parse_hf_config(config, name, str(path))


def parse_hf_config(config: Mapping[str, Any], name: str, source: str) -> Model:
    """The model that a parsed `config.json` describes.

    Raises:
        ScenarioError: see `read_hf_config`; `source` stands for the file.
    """
    text = config.get("text_config") or config.get("language_config") or config
    if not isinstance(text, dict):
        raise ScenarioError([Problem(source, "text_config", "expected a JSON object")])
    fields = Fields({"model_type": config.get("model_type"), **text})
    for key, meaning in _UNSUPPORTED.items():
        if fields.present(key):
            fields.complain(key, f"{meaning} cannot be simulated")
    dtype = weight_dtype(fields, config.get("quantization_config"))
    shape = _attention(fields) | _mlp(fields) | _vocabulary(fields) | _window(fields)
    if fields.problems:
        raise ScenarioError([Problem(source, key, message) for key, message in fields.problems])
    try:
        return Model.model_validate({"name": name, "source": source, "weight_dtype": dtype, **shape})
    except ValidationError as error:
        messages = (e["msg"].removeprefix("Value error, ") for e in error.errors())
        raise ScenarioError([Problem(source, "", f"cannot be simulated: {message}") for message in messages]) from error


def _attention(fields: Fields) -> dict[str, int]:
    hidden, heads = fields.count("hidden_size", "n_embd"), fields.count("num_attention_heads", "n_head")
    kv_lora_rank = fields.optional(0, "kv_lora_rank")
    if not kv_lora_rank:
        return {
            "hidden": hidden,
            "q_heads": heads,
            "kv_heads": fields.optional(heads, "num_key_value_heads"),
            "head_dim": fields.optional(hidden // heads, "head_dim"),
        }
    rope, nope = fields.count("qk_rope_head_dim"), fields.count("qk_nope_head_dim")
    return {
        "hidden": hidden,
        "q_heads": heads,
        "kv_heads": heads,
        "head_dim": rope + nope,
        "kv_lora_rank": kv_lora_rank,
        "q_lora_rank": fields.optional(0, "q_lora_rank"),
        "qk_rope_dim": rope,
        "qk_nope_dim": nope,
        "v_head_dim": fields.count("v_head_dim"),
    }


def _mlp(fields: Fields) -> dict[str, int]:
    layers = fields.count("num_hidden_layers", "n_layer")
    experts = fields.optional(0, "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    if experts <= 1:
        return {"layers": layers, "dense_layers": layers, "ffn": fields.count("intermediate_size")}
    narrow = fields.model_type.startswith(_EXPERT_MLP_IN_INTERMEDIATE_SIZE)
    moe_ffn = fields.count("intermediate_size" if narrow else "moe_intermediate_size")
    dense = _dense_layers(fields, layers)
    shared, shared_ffn = fields.optional(0, "n_shared_experts", "num_shared_experts"), moe_ffn
    if not shared and (one_wide := fields.optional(0, "shared_expert_intermediate_size", "shared_intermediate_size")):
        shared, shared_ffn = 1, one_wide
    return {
        "layers": layers,
        "dense_layers": dense,
        "ffn": fields.count("intermediate_size") if dense else 0,
        "experts": experts,
        "top_k": fields.count("num_experts_per_tok", "experts_per_token", "moe_topk"),
        "moe_ffn": moe_ffn,
        "shared_experts": shared,
        "shared_ffn": shared_ffn if shared else 0,
    }


def _dense_layers(fields: Fields, layers: int) -> int:
    """Layers without experts: the first k, those listed, and those between sparse steps (Qwen MoE)."""
    step = fields.optional(1, "decoder_sparse_step", "moe_layer_freq")
    listed = fields.numbers("mlp_only_layers")
    first = fields.optional(0, "first_k_dense_replace")
    return sum(1 for layer in range(layers) if layer < first or layer in listed or (layer + 1) % step)


def _vocabulary(fields: Fields) -> dict[str, object]:
    tied = fields.flag("tie_word_embeddings", default=fields.model_type.startswith(_TIED_BY_DEFAULT))
    longest = fields.optional(0, "max_position_embeddings", "n_positions", "max_sequence_length")
    return {
        "vocab": fields.count("vocab_size"),
        "tied_embeddings": tied,
        "mtp_layers": fields.optional(0, "num_nextn_predict_layers", "num_mtp_modules"),
        "max_model_len": longest or None,
    }


def _window(fields: Fields) -> dict[str, int]:
    """Sliding-window attention: the period of the full-attention layers, from a list, a pattern or the family."""
    window = fields.optional(0, "sliding_window", "sliding_window_size")
    longest = fields.optional(0, "max_position_embeddings")
    unused = not fields.flag("use_sliding_window", default=True) or (longest and window >= longest)
    layers = fields.count("num_hidden_layers", "n_layer")
    if not window or unused:
        return {}
    kinds = fields.words("layer_types")
    if kinds:
        return _window_from_list(fields, window, kinds)
    if fields.model_type.startswith("gemma2"):
        return {"window": window, "full_attn_every": 2}
    pattern = fields.optional(6 if fields.model_type.startswith("gemma3") else 0, "sliding_window_pattern")
    return {"window": window, "full_attn_every": pattern or layers + 1}


def _window_from_list(fields: Fields, window: int, kinds: tuple[str, ...]) -> dict[str, int]:
    full = kinds.count("full_attention")
    if full == len(kinds):
        return {}
    if full + kinds.count("sliding_attention") != len(kinds):
        fields.complain(
            "layer_types", f"only full_attention and sliding_attention can be simulated, found {set(kinds)}"
        )
    for period in range(1, len(kinds) + 2):
        if len(kinds) // period == full:
            return {"window": window, "full_attn_every": period}
    fields.complain("layer_types", f"{full} full-attention layers of {len(kinds)} are not one in every n")
    return {}
