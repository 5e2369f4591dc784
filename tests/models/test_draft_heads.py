"""Shapes of draft heads against the published checkpoints."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.models.catalogue import find_model, model_ids
from sim.models.draft_heads import eagle_head, mtp_head

LLAMA, DEEPSEEK = find_model("llama-3.1-8b", Path()), find_model("deepseek-v3", Path())


def test_eagle3_head_of_llama_has_the_published_size():
    head = eagle_head(LLAMA, "eagle3")
    # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: 850 MB in 16 bits
    assert head.weight_bytes() == pytest.approx(850e6, rel=0.005)
    shapes = {shape.name: shape for shape in head.linear_shapes()}
    assert shapes["fc"][1:] == (4096, 3 * 4096, 1)
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
