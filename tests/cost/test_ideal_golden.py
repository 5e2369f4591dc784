"""The ideal roofline against closed forms: Llama-3.1-8B in BF16 on H100 peaks.

Golden values: docs/background/mathematics.md, "Break-even".
"""

from pathlib import Path

import pytest

from sim.cost.passes import plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Naive
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model

BANDWIDTH, PEAK = 3.35e12, 989e12
PARAMETERS = 8.03e9
KV_BYTES = 131_072


@pytest.fixture(scope="module")
def price(deploy):
    """The golden case reads all 8.03e9 weights; a real pass only looks rows of the embedding up, so it goes on top."""
    gpu = find_gpu("h100-sxm").model_copy(update={"bf16": PEAK, "memory_bandwidth": BANDWIDTH})
    llama = find_model("llama-3.1-8b", Path())
    embedding = llama.vocab * llama.hidden
    return Naive().bind(deploy(llama.model_copy(update={"extra_linear_parameters": embedding}), gpu)).target.price


def test_weights_take_m(price):
    assert price(plain_pass(1, 0)).seconds == pytest.approx(4.794e-3, rel=1e-3)


def test_a_compute_bound_token_takes_f(price):
    """Slope of the linear part, LM head included."""
    one, two = (price(verify_pass(batch, 1, 0)) for batch in (2000, 2001))
    slope = two.linear + two.lm_head - one.linear - one.lm_head
    assert slope == pytest.approx(16.239e-6, rel=1e-3)


def test_kv_of_415_tokens_takes_f(price):
    kv_token = price(plain_pass(1, 1000)).attention / 1001
    assert kv_token == pytest.approx(KV_BYTES / BANDWIDTH, rel=1e-12)
    assert 2 * PARAMETERS / PEAK / kv_token == pytest.approx(415, abs=0.5)


def test_drafts_read_no_more_kv_than_their_own(price):
    assert price(verify_pass(8, 5000, 7)).attention == pytest.approx(8 * 5008 * KV_BYTES / BANDWIDTH, rel=1e-12)


def test_a_pass_without_the_embedding_is_shorter(deploy):
    """What the simulator charges: 7.50e9 active weights, 4.48 ms."""
    llama = find_model("llama-3.1-8b", Path())
    found = Naive().bind(deploy(llama, "h100-sxm")).target.price(plain_pass(1, 0)).seconds
    assert found == pytest.approx(2 * llama.active_parameters / BANDWIDTH, rel=2e-3)


def test_prefill_is_two_flops_a_weight_and_the_causal_half_of_attention(price):
    """At 989 TFLOP/s: projections of all tokens, LM head of one row (memory-bound), half the attention square."""
    tokens, heads, head_dim, layers = 8192, 32, 128, 32
    found = price(prefill_pass(tokens))
    attention = layers * 4 * heads * head_dim * tokens * (tokens + 1) / 2 / PEAK
    assert found.attention == pytest.approx(attention, rel=1e-9)
    linear = 2 * (PARAMETERS - 128_256 * 4096) * tokens / PEAK
    assert found.linear == pytest.approx(linear, rel=2e-3)
