"""Memory budgets: golden block counts, two recorded servers, laws, and what a user sees when nothing fits."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.deployment import plan_deployment
from sim.errors import CapacityError, ScenarioError
from sim.hardware.catalogue import find_gpu
from sim.memory import activation_peak_bytes, kv_blocks
from sim.models.catalogue import find_model, model_ids
from sim.models.draft_heads import eagle_head

GIB = 2**30
LLAMA = find_model("llama-3.1-8b", Path())
H100 = find_gpu("h100-sxm")


def plan(target=LLAMA, gpu=H100, drafter=None, tp=1, **changes):
    arguments = {
        "tensor_parallel_size": tp,
        "drafter_tensor_parallel_size": tp,
        "weight_dtype": "auto",
        "drafter_weight_dtype": "auto",
        "kv_cache_dtype": "auto",
        "block_size": 16,
        "gpu_memory_utilization": 0.9,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "max_model_len": 2048,
    }
    return plan_deployment(target, drafter, gpu, **(arguments | changes))


def test_golden_pool_of_a_vllm_log():
    """vLLM issue 19996: "Available KV cache memory: 51.63 GiB", "GPU KV cache size: 410,128 tokens"."""
    pool = int(51.63 * GIB)
    with_head = LLAMA.kv_bytes_per_token() + eagle_head(LLAMA, "eagle").kv_bytes_per_token()
    assert with_head == 135_168
    assert kv_blocks(pool, 16, with_head) == 25_633
    assert kv_blocks(pool, 16, with_head) * 16 == 410_128
    assert kv_blocks(pool, 16, LLAMA.kv_bytes_per_token()) * 16 == 422_944


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_the_same_log_from_first_principles(kind):
    """H100 80 GB, vLLM's defaults there (8192 tokens, 1024 sequences), utilisation 0.9: 51.63 GiB were left for KV.

    The issue does not say which head it loaded; either is within 1.5 %.
    """
    deployment = plan(drafter=eagle_head(LLAMA, kind), max_num_seqs=1024, max_model_len=131_072)
    assert deployment.memory.kv_pool / GIB == pytest.approx(51.63, rel=0.015)
    assert deployment.num_kv_tokens == pytest.approx(410_128, rel=0.015)


def test_recorded_rtx_4090(shared_data):
    """vLLM 0.19, Llama-3.1-8B, RTX 4090: 2,588 blocks recorded; we predict 2,530, which is 2.2 % fewer."""
    engine = json.loads((shared_data / "recorded_vllm" / "rtx4090_llama-3.1-8b_engine.json").read_text())
    gpu = find_gpu("rtx-4090")
    assert gpu.memory == engine["hardware"]["device_total_memory_bytes"]
    recorded = engine["kv_cache"]
    deployment = plan(
        gpu=gpu,
        block_size=recorded["block_size"],
        gpu_memory_utilization=recorded["gpu_memory_utilization"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_num_seqs=engine["max_num_seqs"],
        max_model_len=engine["max_model_len"],
    )
    assert deployment.num_kv_blocks == pytest.approx(recorded["num_gpu_blocks"], rel=0.03)
    pinned = plan(gpu=gpu, num_gpu_blocks_override=recorded["num_gpu_blocks"])
    assert (pinned.num_kv_blocks, pinned.num_kv_tokens) == (2588, recorded["num_kv_tokens"])


def test_resolved_formats():
    auto = plan(drafter=eagle_head(LLAMA, "eagle3"))
    assert (auto.weight_dtype, auto.kv_cache_dtype, auto.drafter_weight_dtype) == ("bf16", "bf16", "bf16")
    fp8 = plan(weight_dtype="fp8", kv_cache_dtype="fp8")
    assert (fp8.weight_dtype, fp8.kv_cache_dtype, fp8.drafter_weight_dtype) == ("fp8", "fp8", "auto")
    assert plan(weight_dtype="fp16").kv_cache_dtype == "fp16"
    assert fp8.memory.kv_bytes_per_token * 2 == auto.memory.kv_bytes_per_token - 4096
    assert fp8.memory.target_weights < 0.57 * auto.memory.target_weights


def test_length_limit_of_the_model_or_of_the_memory():
    assert plan(max_model_len=None).max_model_len == 131_072
    small = plan(gpu=find_gpu("rtx-4090"), max_model_len=None)
    assert small.max_model_len == small.num_kv_tokens < 131_072
    assert plan(max_model_len=4096).max_model_len == 4096


arms = st.fixed_dictionaries(
    {
        "target": st.sampled_from([LLAMA, find_model("qwen3-30b-a3b", Path()), find_model("gpt-oss-20b", Path())]),
        "kind": st.sampled_from([None, "eagle", "eagle3"]),
        "gpu_memory_utilization": st.floats(0.85, 1.0),
        "block_size": st.sampled_from([1, 16, 64]),
        "max_num_batched_tokens": st.integers(1, 16384),
        "max_num_seqs": st.integers(1, 1024),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
    }
)


def plan_arm(arm, **changes):
    values = arm | changes
    kind = values.pop("kind")
    drafter = eagle_head(values["target"], kind) if kind else None
    return plan(drafter=drafter, max_model_len=1, **values)


@given(arm=arms)
def test_every_usable_byte_is_accounted_for(arm):
    memory = plan_arm(arm).memory
    parts = memory.target_weights + memory.drafter_weights + memory.activations + memory.graphs + memory.kv_pool
    assert parts == memory.usable <= memory.total


@given(arm=arms)
def test_blocks_fill_the_pool(arm):
    deployment = plan_arm(arm)
    block = deployment.block_size * deployment.memory.kv_bytes_per_token
    assert 0 <= deployment.memory.kv_pool - deployment.num_kv_blocks * block < block


@given(arm=arms, utilisation=st.floats(0.85, 1.0))
def test_more_utilisation_never_fewer_blocks(arm, utilisation):
    low, high = sorted((arm["gpu_memory_utilization"], utilisation))
    assert (
        plan_arm(arm, gpu_memory_utilization=low).num_kv_blocks
        <= plan_arm(arm, gpu_memory_utilization=high).num_kv_blocks
    )


@given(arm=arms)
def test_a_drafter_never_adds_blocks(arm):
    assert plan_arm(arm | {"kind": "eagle3"}).num_kv_blocks <= plan_arm(arm | {"kind": None}).num_kv_blocks


@given(arm=arms, tp=st.sampled_from([2, 4]))
def test_more_gpus_hold_more_than_as_many_times_the_tokens(arm, tp):
    one, many = plan_arm(arm), plan_arm(arm, tp=tp)
    assert many.memory.kv_bytes_per_token * tp == one.memory.kv_bytes_per_token
    assert many.num_kv_tokens >= one.num_kv_tokens * tp - tp * arm["block_size"]


@given(tokens=st.integers(1, 65536), seqs=st.integers(1, 2048), model_id=st.sampled_from(model_ids()))
def test_activations_grow_with_the_batch(tokens, seqs, model_id):
    model = find_model(model_id, Path())
    peak = activation_peak_bytes(model, 1, tokens, seqs)
    assert peak <= activation_peak_bytes(model, 1, tokens + 1, seqs)
    assert peak <= activation_peak_bytes(model, 1, tokens, seqs + 1)
    assert (
        activation_peak_bytes(model, 2, tokens, seqs)
        <= peak
        <= activation_peak_bytes(model, 1, tokens, seqs, drafts=True)
    )


def test_an_undivided_drafter_costs_every_gpu_its_whole_weights():
    head = eagle_head(LLAMA, "eagle3")
    split, whole = plan(drafter=head, tp=4), plan(drafter=head, tp=4, drafter_tensor_parallel_size=1)
    assert whole.memory.drafter_weights == head.weight_bytes() > 2 * split.memory.drafter_weights
    assert whole.memory.kv_bytes_per_token - split.memory.kv_bytes_per_token == 4096 * 3 // 4


def test_pinned_activations():
    assert plan(activation_bytes=0).memory.activations == 0


def test_weights_that_do_not_fit():
    with pytest.raises(CapacityError) as caught:
        plan(target=find_model("llama-3.1-70b", Path()))
    message = " ".join(str(caught.value).split())
    assert message.startswith("Llama-3.1-70B on 1 x H100-SXM: no room for KV. Memory of each GPU:")
    for line in ("GPU total 79.11 GiB", "target weights 131.42 GiB", "needed for KV 0.62 GiB"):
        assert line in message
    assert message.endswith("Any of these would fit: weight_dtype: fp8, tensor_parallel_size: 2.")


def test_a_request_that_does_not_fit_names_a_length_that_does():
    gpu = find_gpu("rtx-4090")
    with pytest.raises(CapacityError, match="the KV of one request of 65536 tokens does not fit") as caught:
        plan(gpu=gpu, max_model_len=65_536)
    length = int(str(caught.value).rsplit("max_model_len: ", 1)[1].rstrip("."))
    assert plan(gpu=gpu, max_model_len=length).num_kv_tokens == length
    with pytest.raises(CapacityError):
        plan(gpu=gpu, max_model_len=length + 1)


def test_nothing_helps():
    with pytest.raises(CapacityError, match="No single change"):
        plan(target=find_model("kimi-k2-instruct", Path()), gpu=find_gpu("l4"))


def test_pinned_blocks_need_room_for_the_weights_and_one_request():
    assert plan(num_gpu_blocks_override=7, max_model_len=112).num_kv_blocks == 7
    with pytest.raises(CapacityError, match="gives 112 KV tokens, fewer than one request of max_model_len 113"):
        plan(num_gpu_blocks_override=7, max_model_len=113)
    with pytest.raises(CapacityError, match="the weights do not fit"):
        plan(target=find_model("llama-3.1-70b", Path()), num_gpu_blocks_override=7)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tp": 3}, r"tensor_parallel_size 3 does not divide Llama-3.1-8B .*; allowed: 1, 2, 4, 8, 16, 32"),
        ({"tp": 0}, "tensor_parallel_size 0 does not divide"),
        ({"tp": 4, "drafter_tensor_parallel_size": 2, "drafter": eagle_head(LLAMA, "eagle")}, "must be 1 or"),
        ({"kv_cache_dtype": "int4"}, "unknown kv_cache_dtype 'int4'; allowed: auto"),
        ({"weight_dtype": "fp6"}, "unknown weight_dtype 'fp6'"),
        ({"gpu_memory_utilization": 1.1}, "must be above 0 and at most 1"),
        ({"gpu_memory_utilization": 0.0}, "must be above 0"),
        ({"max_model_len": 200_000}, "exceeds the 131072 tokens that Llama-3.1-8B supports"),
    ],
)
def test_impossible_arguments(changes, complaint):
    with pytest.raises(ScenarioError, match=complaint):
        plan(**changes)
