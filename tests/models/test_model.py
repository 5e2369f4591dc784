"""Shapes: parameters, matrices and bytes against the shared table, published counts and conservation laws."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.errors import ScenarioError
from sim.models.catalogue import find_model, model_ids
from sim.models.model import WEIGHT_BYTES, Model

HERE = Path()
MODELS = [find_model(model_id, HERE) for model_id in model_ids()]
LLAMA = find_model("llama-3.1-8b", HERE)
DEEPSEEK = find_model("deepseek-v3", HERE)


def test_every_row_of_the_shared_table(shared_data):
    with (shared_data / "models.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({find_model(row["hf_id"], HERE).name for row in rows})
    assert len(rows) + 6 == len(MODELS)  # six more are in the catalogue: below
    for row in rows:
        model = find_model(row["hf_id"], HERE)
        assert model.name == row["name"]
        # half a unit of the printed digit, and the norms, which the table leaves out
        tolerance = 0.0051 + 2 * model.layers * model.hidden / 1e9
        assert model.num_parameters / 1e9 == pytest.approx(float(row["params_b_calc"]), abs=tolerance)
        assert model.active_parameters / 1e9 == pytest.approx(float(row["active_b_calc"]), abs=tolerance)
        assert model.kv_bytes_per_token() == int(row["kv_bytes_per_token_bf16"])
        assert (model.weight_dtype, model.mtp_layers) == (row["weight_dtype"], int(row["mtp_layers"]))
        assert model.is_mla == (row["attn"] == "mla")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # element counts of the published safetensors
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("mistral-7b-v0.3", 7_248_023_552),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-33b", 32_528_943_616),
        ("tinyllama-1.1b", 1_100_048_384),
        ("llama-68m", 68_030_208),
    ],
)
def test_published_parameter_counts_are_exact(name, parameters):
    assert find_model(name, HERE).num_parameters == parameters


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [  # of the model cards: text model of 109 B with its vision tower; 103 B with 6.1 B active
        ("llama-4-scout-17b-16e", 107.8, 17.2),
        ("ling-flash-2.0", 102.9, 6.1),
    ],
)
def test_mixtures_that_were_recalled_have_their_published_size(name, billions, active):
    """Active: the cards count the embedding, of which a token reads one row."""
    model = find_model(name, HERE)
    assert model.num_parameters / 1e9 == pytest.approx(billions, rel=0.01)
    embedding = model.vocab * model.hidden
    assert (model.active_parameters + embedding) / 1e9 == pytest.approx(active, rel=0.02)


def test_quantised_checkpoints_have_their_published_size():
    # gpt-oss-20b: safetensors of 13.76 GB; experts in MXFP4, everything else in 16 bits
    assert find_model("gpt-oss-20b", HERE).weight_bytes() == pytest.approx(13.76e9, rel=0.01)
    # gpt-oss-120b: 65.25 GB
    assert find_model("gpt-oss-120b", HERE).weight_bytes() == pytest.approx(65.25e9, rel=0.01)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_matrices_add_up_to_the_parameters(model):
    linear = sum(shape.parameters for shape in model.linear_shapes())
    routed = model.expert_shape()
    experts = routed.layers * routed.experts * routed.parameters_per_expert
    embeddings = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    norms = (2 * model.layers + 1) * model.hidden
    assert linear + experts + embeddings + norms == model.num_parameters
    assert model.full_attention_layers + model.window_layers == model.layers
    assert model.active_parameters <= model.num_parameters


@given(model=st.sampled_from(MODELS), tp=st.sampled_from([1, 2, 4, 8]), dtype=st.sampled_from(["auto", *WEIGHT_BYTES]))
def test_splitting_keeps_every_byte_and_saves_some(model, tp, dtype):
    whole, share = model.weight_bytes(dtype), model.weight_bytes(dtype, tp)
    assert share <= whole <= share * tp
    assert (
        model.kv_bytes_per_token("auto", tp) <= model.kv_bytes_per_token() <= tp * model.kv_bytes_per_token("auto", tp)
    )


@given(model=st.sampled_from(MODELS))
def test_formats_order_the_weights(model):
    sizes = [model.weight_bytes(dtype) for dtype in ("int4", "nvfp4", "fp8", "bf16")]
    assert sizes == sorted(sizes)
    assert model.weight_bytes("fp8") == model.weight_bytes("int8")
    assert model.weight_bytes() == model.weight_bytes(model.weight_dtype)


def test_llama_shapes_on_two_gpus():
    assert [tuple(shape) for shape in LLAMA.linear_shapes(2)] == [
        ("qkv", 3072, 4096, 32),
        ("o", 4096, 2048, 32),
        ("gate_up", 14336, 4096, 32),
        ("down", 4096, 7168, 32),
    ]
    assert tuple(LLAMA.lm_head_shape(2)) == ("lm_head", 64128, 4096, 1)


def test_mla_splits_heads_but_neither_latent_nor_a_projections():
    shapes = {shape.name: shape for shape in DEEPSEEK.linear_shapes(8)}
    assert shapes["q_a"][1:] == (1536, 7168, 61)
    assert shapes["q_b"][1:] == (16 * 192, 1536, 61)
    assert shapes["kv_a"][1:] == (576, 7168, 61)
    assert shapes["kv_b"][1:] == (16 * 256, 512, 61)
    assert shapes["o"][1:] == (7168, 16 * 128, 61)
    assert shapes["shared_gate_up"][1:] == (512, 7168, 58)
    assert DEEPSEEK.kv_bytes_per_token("auto", 8) == DEEPSEEK.kv_bytes_per_token() == 61 * 576 * 2
    assert tuple(DEEPSEEK.expert_shape(8)) == (58, 256, 8, 7168, 256, 256)
    assert tuple(DEEPSEEK.expert_shape(8, expert_parallel=True)) == (58, 256, 8, 7168, 2048, 32)


def test_kv_heads_are_copied_when_there_are_more_gpus():
    assert LLAMA.kv_bytes_per_token("auto", 16) == LLAMA.kv_bytes_per_token("auto", 8) == 32 * 2 * 128 * 2
    assert LLAMA.kv_bytes_per_token("fp8") * 2 == LLAMA.kv_bytes_per_token("bf16")


def test_unknown_format():
    with pytest.raises(ScenarioError, match="unknown weight_dtype 'fp6'; allowed: auto, bf16"):
        LLAMA.weight_bytes("fp6")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kv_heads": 5}, r"kv_heads \(5\) must divide q_heads \(32\)"),
        ({"dense_layers": 33}, "exceeds layers"),
        ({"ffn": 0}, "need ffn > 0"),
        ({"experts": 8}, "go together"),
        ({"dense_layers": 31}, "go together"),
        ({"dense_layers": 0, "experts": 4, "top_k": 8, "moe_ffn": 64}, r"top_k \(8\) exceeds experts \(4\)"),
        ({"shared_experts": 1}, "shared_experts and shared_ffn"),
        ({"kv_lora_rank": 512}, "kv_lora_rank, qk_rope_dim"),
        ({"full_attn_every": 2}, "needs a window"),
        ({"layers": 0}, "have no layers"),
    ],
)
def test_inconsistent_shapes_are_refused(change, complaint):
    with pytest.raises(ValidationError, match=complaint):
        Model.model_validate(LLAMA.model_dump() | change)
