"""Experts spread whole over GPUs: the busiest GPU against sampled routing, and the limits that must hold exactly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.base import BoundCost
from sim.cost.moe import Routing
from sim.cost.passes import plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Naive, Roofline
from sim.deployment import plan_deployment
from sim.errors import ScenarioError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.models.catalogue import find_model

DEPLOYMENTS = [("qwen3-30b-a3b", "h100-sxm", 8), ("mixtral-8x7b", "h100-sxm", 4), ("gpt-oss-20b", "b200-sxm", 8)]


def plan(model: str, gpu: str = "h100-sxm", tp: int = 8, *, spread: bool = True):
    return plan_deployment(
        find_model(model, Path()), None, find_gpu(gpu), tensor_parallel_size=tp, drafter_tensor_parallel_size=tp,
        weight_dtype="auto", drafter_weight_dtype="auto", kv_cache_dtype="auto", block_size=16,
        gpu_memory_utilization=0.9, max_num_batched_tokens=8192, max_num_seqs=256, max_model_len=4096,
        enable_expert_parallel=spread,
    )  # fmt: skip


_BOUND: dict[tuple[object, ...], BoundCost] = {}


def bound(cost: Roofline | Naive, model: str, gpu: str, tp: int, *, spread: bool = True) -> BoundCost:
    key = (repr(cost), model, gpu, tp, spread)
    if key not in _BOUND:
        _BOUND[key] = cost.bind(plan(model, gpu, tp, spread=spread))
    return _BOUND[key]


def sampled(experts: int, top_k: int, tokens: int, num_gpus: int, skew: float, layers: int = 300):
    """Largest number of distinct experts and of choices over GPUs, layer by layer; exact top-k by Gumbel keys."""
    rng = np.random.default_rng(11)
    popularity = -skew * np.log(np.arange(1.0, experts + 1.0))
    gpu_of = np.arange(experts) // -(-experts // num_gpus)
    distinct, choices = [], []
    for _ in range(layers):
        keys = rng.permutation(popularity) + rng.gumbel(size=(tokens, experts))
        counts = np.bincount(np.argpartition(-keys, top_k - 1, axis=1)[:, :top_k].ravel(), minlength=experts)
        choices.append(np.bincount(gpu_of, weights=counts, minlength=num_gpus).max())
        distinct.append(np.bincount(gpu_of, weights=counts > 0, minlength=num_gpus).max())
    return np.array(distinct), np.array(choices)


#: Eight experts of very unequal popularity are left out: there `Routing.chosen` itself is off by 6 %.
BUSIEST = [(128, 8, 8, 0.0), (128, 8, 8, 0.85), (128, 8, 8, 1.5), (128, 4, 2, 0.85), (8, 2, 4, 0.85), (8, 2, 8, 0.0)]


@pytest.mark.parametrize("tokens", [1, 8, 64, 256])
@pytest.mark.parametrize(("experts", "top_k", "num_gpus", "skew"), BUSIEST)
def test_the_busiest_gpu_agrees_with_sampled_routing(experts, top_k, num_gpus, skew, tokens):
    """4 % for two moments and a skewness in place of the distribution, four standard errors for the sample."""
    found = Routing(skew).busiest(experts, top_k, tokens, num_gpus)
    for expected, largest in zip(found, sampled(experts, top_k, tokens, num_gpus, skew), strict=True):
        tolerance = 0.04 * largest.mean() + 4 * largest.std() / len(largest) ** 0.5
        assert expected == pytest.approx(largest.mean(), abs=tolerance)


def test_one_gpu_has_the_mean_and_repeated_choices_unbalance():
    routing = Routing(0.85)
    alone = routing.busiest(128, 8, 37, 1)
    assert alone.distinct == pytest.approx(routing.distinct(128, 8, 37), rel=1e-9)
    assert alone.choices == pytest.approx(37 * 8, rel=1e-9)
    assert Routing(0.85, 0.5).busiest(128, 8, 37, 8).choices > routing.busiest(128, 8, 37, 8).choices
    assert Routing(0.85, 0.5).busiest(128, 8, 37, 8).distinct < routing.busiest(128, 8, 37, 8).distinct


@pytest.mark.parametrize("cost", [Roofline(), Naive(), Roofline(expert_popularity_skew=0.85)], ids=str)
@pytest.mark.parametrize("forward", [plain_pass(3, 700), verify_pass(64, 900, 3), prefill_pass(2000)])
def test_on_one_gpu_expert_parallelism_changes_nothing(cost, forward):
    spread, split = (bound(cost, "gpt-oss-20b", "h100-sxm", 1, spread=spread) for spread in (True, False))
    assert spread.target.price(forward) == split.target.price(forward)
    assert plan("gpt-oss-20b", tp=1).memory == plan("gpt-oss-20b", tp=1, spread=False).memory


@given(st.sampled_from(DEPLOYMENTS), st.sampled_from([0.0, 0.85]), st.integers(1, 2000))
def test_times_rise_with_the_tokens_and_naive_is_never_slower(where, skew, tokens):
    cost = Roofline(engine="none", expert_popularity_skew=skew)
    here, more = (bound(cost, *where).target.price(prefill_pass(n)).linear for n in (tokens, tokens + 1))
    assert here <= more
    if not skew:
        assert bound(Naive(), *where).target.price(prefill_pass(tokens)).linear <= here


def test_few_tokens_are_dearer_than_with_slices_and_all_experts_read_cost_the_same_bytes():
    """At batch 1 the busiest of 8 GPUs reads 2.5 whole experts where slices cost 8/8; at batch 1000 all are read."""
    spread, split = (bound(Naive(), "qwen3-30b-a3b", "h100-sxm", 8, spread=s).target for s in (True, False))
    assert spread.price(plain_pass(1, 500)).linear > 1.2 * split.price(plain_pass(1, 500)).linear
    many = plain_pass(1000, 500)
    assert spread.price(many).linear == pytest.approx(split.price(many).linear, rel=0.02)


def test_all_reduces_stay_and_nothing_else_is_exchanged():
    """vLLM without data parallelism: every GPU has all tokens, and the experts' outputs are summed as before."""
    spread, split = (bound(Roofline(), "qwen3-30b-a3b", "h100-sxm", 8, spread=s).target for s in (True, False))
    for forward in (plain_pass(1, 100), verify_pass(64, 900, 3)):
        assert spread.price(forward).collective == split.price(forward).collective


def test_weights_are_whole_experts():
    model = find_model("qwen3-30b-a3b", Path())
    assert plan("qwen3-30b-a3b").memory.target_weights == plan("qwen3-30b-a3b", spread=False).memory.target_weights
    uneven = model.model_copy(update={"experts": 60, "top_k": 4})
    held = uneven.expert_shape(8, expert_parallel=True)
    assert (held.held, held.width) == (8, model.moe_ffn)
    assert uneven.weight_bytes("bf16", 8, expert_parallel=True) > uneven.weight_bytes("bf16", 8)


def test_widths_that_do_not_split_are_fine_when_experts_stay_whole():
    """Qwen3-30B's experts are 768 wide: 768 / 16 = 48 splits, and MLP-free layers leave the heads to decide."""
    odd = find_model("qwen3-30b-a3b", Path()).model_copy(update={"moe_ffn": 770})
    args = dict(
        tensor_parallel_size=8, drafter_tensor_parallel_size=8, weight_dtype="auto", drafter_weight_dtype="auto",
        kv_cache_dtype="auto", block_size=16, gpu_memory_utilization=0.9, max_num_batched_tokens=2048, max_num_seqs=16,
        max_model_len=4096,
    )  # fmt: skip
    with pytest.raises(ScenarioError, match="does not divide"):
        plan_deployment(odd, None, find_gpu("h100-sxm"), **args)
    assert plan_deployment(odd, None, find_gpu("h100-sxm"), **args, enable_expert_parallel=True).expert_parallel


def test_what_cannot_be_spread_is_refused():
    with pytest.raises(ScenarioError, match=r"Llama-3\.1-8B is dense: it has no experts"):
        plan("llama-3.1-8b")
    with pytest.raises(ScenarioError, match=r"16 .*whole expert for each GPU, of 8\); allowed: 1, 2, 4, 8"):
        plan("mixtral-8x7b", tp=16)


def test_kernels_that_walk_over_all_choices_pay_for_those_of_other_gpus():
    target = bound(Roofline(), "qwen3-30b-a3b", "h100-sxm", 8).target
    experts = target.parts.experts
    assert experts.fit.routes_all_tokens
    own = replace(experts, fit=experts.fit.model_copy(update={"routes_all_tokens": False}))
    assert own.terms(256).seconds < experts.terms(256).seconds
    assert not choose_profile(find_gpu("b200-sxm")).moe("fp8").routes_all_tokens
