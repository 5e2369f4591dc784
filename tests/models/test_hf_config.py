"""Hugging Face configurations: the families' own spellings, the defaults they leave out, and what is refused."""

import json
import re
from pathlib import Path

import pytest

from sim.errors import ScenarioError
from sim.models.catalogue import find_model
from sim.models.hf_config import parse_hf_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "vocab_size": 129280,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 24,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
    "vocab_size": 201088,
}
GEMMA_3_27B = {
    "model_type": "gemma3",
    "architectures": ["Gemma3ForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "num_hidden_layers": 62,
        "sliding_window": 1024,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    },
    "vision_config": {"hidden_size": 1152},
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "head_dim": 128,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 48,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "max_position_embeddings": 32768,
    "vocab_size": 32000,
}
GLM_4_5_AIR = {
    "model_type": "glm4_moe",
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "head_dim": 128,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "num_hidden_layers": 46,
    "first_k_dense_replace": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 131072,
    "vocab_size": 151552,
}
QWEN2_5_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "max_position_embeddings": 131072,
    "vocab_size": 152064,
}
PHI_4 = {
    "model_type": "phi3",
    "hidden_size": 5120,
    "intermediate_size": 17920,
    "num_attention_heads": 40,
    "num_key_value_heads": 10,
    "num_hidden_layers": 40,
    "sliding_window": None,
    "max_position_embeddings": 16384,
    "vocab_size": 100352,
}
MINIMAX_M2 = {
    "model_type": "minimax_m2",
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "head_dim": 128,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "num_hidden_layers": 62,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "num_mtp_modules": 3,
    "quantization_config": {"quant_method": "fp8"},
    "vocab_size": 200064,
}


@pytest.mark.parametrize(
    ("config", "model_id"),
    [
        (LLAMA, "llama-3.1-8b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT_OSS, "gpt-oss-20b"),
        (GEMMA_3_27B, "gemma-3-27b"),
        (QWEN3_MOE, "qwen3-30b-a3b"),
        (MIXTRAL, "mixtral-8x7b"),
        (GLM_4_5_AIR, "glm-4.5-air"),
        (QWEN2_5_7B, "qwen2.5-7b"),
        (PHI_4, "phi-4"),
        (MINIMAX_M2, "minimax-m2.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_config_gives_the_shape_of_the_catalogue(tmp_path, config, model_id):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    read = find_model("my-model/config.json", tmp_path)
    listed = find_model(model_id, tmp_path)
    assert read.name == "my-model"
    assert read.source == str(folder / "config.json")
    other = {"name", "source", "hf_ids"}
    assert read.model_dump(exclude=other) == listed.model_dump(exclude=other)


def parse(config):
    return parse_hf_config(config, "x", "x/config.json")


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def test_defaults_of_old_files():
    model = parse(
        without(LLAMA, "num_key_value_heads", "tie_word_embeddings", "torch_dtype", "max_position_embeddings")
    )
    assert (model.kv_heads, model.head_dim, model.tied_embeddings) == (32, 128, False)
    assert (model.weight_dtype, model.max_model_len) == ("bf16", None)
    assert parse(GEMMA_3_27B).tied_embeddings is True


@pytest.mark.parametrize(
    ("changes", "window", "full_layers"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, 0),
        ({"model_type": "gemma2", "sliding_window": 4096}, 4096, 16),
        ({"sliding_window": 4096, "max_position_embeddings": 4096}, 0, 32),
        ({"sliding_window": 4096, "use_sliding_window": False}, 0, 32),
        ({"sliding_window": 512, "layer_types": ["full_attention"] * 32}, 0, 32),
        ({"sliding_window": 512, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8}, 512, 8),
        ({"sliding_window": 512, "layer_types": ["sliding_attention"] * 32}, 512, 0),
    ],
)
def test_windows(changes, window, full_layers):
    model = parse(LLAMA | changes)
    assert (model.window, model.full_attention_layers) == (window, full_layers)


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
            "int4",
        ),
        (None, "bf16"),
        ({}, "bf16"),
    ],
)
def test_weight_formats(quantization, dtype):
    assert parse(LLAMA | {"quantization_config": quantization}).weight_dtype == dtype


def test_half_precision():
    assert parse(LLAMA | {"torch_dtype": "float16"}).weight_dtype == "fp16"


def test_all_missing_keys_are_named():
    with pytest.raises(ScenarioError) as caught:
        parse({"model_type": "llama"})
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": "4096"}, "hidden_size: expected a whole number of at least 1, found '4096'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: expected"),
        ({"num_attention_heads": True}, "num_attention_heads: expected"),
        ({"num_key_value_heads": 5}, r"kv_heads \(5\) must divide q_heads \(32\)"),
        ({"num_key_value_heads": -1}, "num_key_value_heads: expected a whole number of at least 0"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: expected true or false"),
        ({"is_encoder_decoder": True}, "encoder-decoder models cannot be simulated"),
        ({"linear_num_key_heads": 16}, "linear attention"),
        ({"index_topk": 2048}, "sparse attention"),
        ({"mamba_d_state": 128}, "state-space"),
        ({"sliding_window": 8, "layer_types": ["linear_attention"] * 32}, "only full_attention and sliding_attention"),
        ({"sliding_window": 8, "layer_types": "all"}, "layer_types: expected a list"),
        ({"num_local_experts": 8}, "moe_intermediate_size: missing"),
        ({"quantization_config": {"quant_method": "hqq"}}, "unknown format quant_method='hqq'"),
        ({"text_config": [1]}, "text_config: expected a JSON object"),
    ],
)
def test_bad_values_name_the_key(changes, complaint):
    with pytest.raises(ScenarioError, match=complaint):
        parse(LLAMA | changes)


def test_irregular_layers_are_refused():
    kinds = ["full_attention"] * 20 + ["sliding_attention"] * 12
    with pytest.raises(ScenarioError, match="20 full-attention layers of 32 are not one in every n"):
        parse(LLAMA | {"sliding_window": 512, "layer_types": kinds})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{\n "a": 1,\n "b"\n}', r"config\.json:4:1: model: malformed JSON"),
        ("[1, 2]", "expected a JSON object"),
        ("", r"config\.json:1:1: model: malformed JSON"),
    ],
)
def test_malformed_files(tmp_path, text, complaint):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ScenarioError, match=complaint):
        find_model("config.json", tmp_path)


def test_unreadable_files(tmp_path):
    with pytest.raises(ScenarioError, match=re.escape(str(Path("no") / "config.json"))):
        find_model("no/config.json", tmp_path)
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not a JSON text file"):
        find_model("x.json", tmp_path)
