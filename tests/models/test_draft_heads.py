"""Shapes of draft heads against the published checkpoints."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.models.catalogue import find_model, model_ids
from sim.models.draft_heads import dflash_head, eagle_head, first_layers, mtp_head

LLAMA, DEEPSEEK = find_model("llama-3.1-8b", Path()), find_model("deepseek-v3", Path())


def test_eagle3_head_of_llama_has_the_published_size():
    head = eagle_head(LLAMA, "eagle3")
    # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: 850 MB in 16 bits
    assert head.weight_bytes() == pytest.approx(850e6, rel=0.005)
    shapes = {shape.name: shape for shape in head.linear_shapes()}
    assert [tuple(shape) for shape in head.intake_shapes()] == [("fc", 4096, 3 * 4096, 1)]
    assert "fc" not in shapes
    assert shapes["qkv"][1:] == (6144, 2 * 4096, 1)
    assert shapes["o"][1:] == (4096, 4096, 1)
    assert tuple(head.lm_head_shape()) == ("lm_head", 32_000, 4096, 1)


def test_eagle_head_computes_the_targets_lm_head_but_does_not_hold_it():
    head = eagle_head(LLAMA, "eagle")
    layer = 4096 * (6144 + 4096 + 3 * 14336)
    assert head.num_parameters == layer + 2 * 4096 * 4096 + 3 * 4096
    assert tuple(head.lm_head_shape()) == tuple(LLAMA.lm_head_shape())
    assert head.active_parameters == head.num_parameters + 128_256 * 4096


def test_mtp_module_is_a_full_layer_with_experts():
    head = mtp_head(DEEPSEEK)
    # DeepSeek-V3 README: 11.5 B parameters besides the shared embedding and head
    assert head.num_parameters == pytest.approx(11.5e9, rel=0.02)
    assert head.weight_dtype == "fp8"
    assert (head.moe_layers, head.experts, head.top_k) == (1, 256, 8)
    assert {shape.name for shape in head.linear_shapes()} >= {"fc", "q_a", "kv_b", "router", "shared_down"}


def test_only_the_first_of_several_layers_reads_embedding_and_state():
    # amazon/gpt-oss-20b-p-eagle and others have four layers
    one, four = (eagle_head(LLAMA, "eagle3", layers) for layers in (1, 4))
    layer = 4096 * (6144 + 4096 + 3 * 14336) + 2 * 4096
    assert four.num_parameters - one.num_parameters == 3 * layer
    assert {shape[1:] for shape in four.linear_shapes() if shape.name == "qkv"} == {(6144, 8192, 1), (6144, 4096, 3)}


def test_dflash_projects_the_targets_states_once_and_to_the_keys_and_values_of_every_layer():
    # z-lab/Qwen3-8B-DFlash-b16: 5 layers, 5 target states
    qwen = find_model("qwen3-8b", Path())
    head = dflash_head(qwen, 5, 5)
    assert [tuple(shape) for shape in head.intake_shapes()] == [("fc", 4096, 5 * 4096, 1), ("kv", 2048, 4096, 5)]
    assert [tuple(shape) for shape in head.intake_shapes(4)] == [("fc", 4096, 5 * 4096, 1), ("kv", 512, 4096, 5)]
    layer = 4096 * (6144 + 4096 + 3 * 12288) + 2 * 4096
    assert head.num_parameters == 5 * layer + 5 * 4096 * 4096 + 4096
    assert head.kv_bytes_per_token() * qwen.layers == 5 * qwen.kv_bytes_per_token()


@pytest.mark.parametrize(("model", "layers"), [("llama-3.1-8b", 8), ("deepseek-v3", 2), ("deepseek-v3", 20)])
def test_first_layers_are_a_part_of_the_target(model, layers):
    target = find_model(model, Path())
    first = first_layers(target, layers)
    assert first.layers == layers
    assert first.moe_layers == max(0, layers - (target.dense_layers if target.experts else target.layers))
    assert first.kv_bytes_per_token() * target.layers == layers * target.kv_bytes_per_token()
    assert first.num_parameters < target.num_parameters


def test_a_target_has_more_layers_than_draft():
    with pytest.raises(ScenarioError, match=r"exit_layer 32: allowed: below the 32 layers of Llama-3.1-8B"):
        first_layers(LLAMA, 32)


def test_mtp_needs_a_module():
    with pytest.raises(ScenarioError, match=r"Llama-3.1-8B has no multi-token-prediction layers"):
        mtp_head(LLAMA)


@given(
    target=st.sampled_from([find_model(model_id, Path()) for model_id in model_ids()]),
    kind=st.sampled_from(["eagle", "eagle3"]),
    tp=st.sampled_from([1, 2, 4]),
)
def test_heads_keep_one_layer_of_the_targets_kv(target, kind, tp):
    head = eagle_head(target, kind)
    assert head.kv_bytes_per_token("auto", tp) * target.layers == target.kv_bytes_per_token("auto", tp)
    assert head.moe_layers == 0
    assert head.lm_head_shape().n_out <= target.vocab
    assert head.weight_bytes() < target.weight_bytes("bf16")
