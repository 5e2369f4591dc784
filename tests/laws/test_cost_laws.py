"""Laws that every cost model must keep, whatever its parameters."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.base import NO_ATTENTION, OP_GROUPS, BoundCost, CostModel, ForwardPass
from sim.cost.linear import Line, Linear
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Naive, Roofline
from sim.cost.stack import EngineCosts, RooflineCost, Stack
from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import ChosenProfile, Fit, Profile, choose_profile, find_profile
from sim.models.catalogue import find_model

GPUS = ("h100-sxm", "a100-sxm-80gb", "b200-sxm", "l40s", "rtx-4090", "rtx-pro-6000-se", "h200-sxm", "mi300x")
MODELS = ("llama-3.1-8b", "qwen2.5-0.5b", "gemma-3-4b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-20b")
SDB_LINE = Linear(base_ms=5.886, per_token_us=21.0, per_kv_token_ns=39.3, draft=Line(base_ms=0.71))
KERNELS_ONLY = Roofline(engine="none")

batches = st.integers(1, 512)
contexts = st.integers(1, 40_000)
draft_lengths = st.integers(0, 32)
gpus = st.sampled_from(GPUS)
models = st.sampled_from(MODELS)


def deployment(model: str, gpu: str, tp: int = 1) -> Deployment:
    target = find_model(model, Path())
    budget = MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    return Deployment(target, None, find_gpu(gpu), tp, tp, target.weight_dtype, "bf16", 16, 1000, budget)


_BOUND: dict[tuple[str, str, str, int], BoundCost] = {}


def bound(cost: CostModel, model: str = "llama-3.1-8b", gpu: str = "h100-sxm", tp: int = 1) -> BoundCost:
    key = (repr(cost), model, gpu, tp)
    if key not in _BOUND:
        _BOUND[key] = cost.bind(deployment(model, gpu, tp))
    return _BOUND[key]


def seconds(cost: CostModel, forward: ForwardPass, model: str = "llama-3.1-8b", gpu: str = "h100-sxm") -> float:
    return bound(cost, model, gpu).target.price(forward).seconds


@given(gpus, models, batches, contexts, draft_lengths)
def test_monotone_in_batch_context_and_drafts(gpu, model, batch, context, k):
    for cost in (KERNELS_ONLY, Naive(), SDB_LINE):
        here = seconds(cost, verify_pass(batch, context, k), model, gpu)
        assert here <= seconds(cost, verify_pass(batch + 1, context, k), model, gpu)
        assert here <= seconds(cost, verify_pass(batch, context + 1, k), model, gpu)
        assert here <= seconds(cost, verify_pass(batch, context, k + 1), model, gpu)


@given(gpus, models, batches, contexts, st.integers(1, 16))
def test_zero_acceptance_is_strictly_slower_than_plain(gpu, model, batch, context, k):
    """A step that verifies drafts always costs more than a plain one, even at ideal peaks: activations move too."""
    for cost in (Roofline(), KERNELS_ONLY, Naive(), SDB_LINE):
        plain = seconds(cost, plain_pass(batch, context), model, gpu)
        assert seconds(cost, verify_pass(batch, context, k), model, gpu) > plain


@given(gpus, models, batches, contexts, draft_lengths)
def test_fitted_is_never_faster_than_ideal(gpu, model, batch, context, k):
    """Where all efficiencies are at most 1; the few that are above are within 10 % of the datasheet bandwidth."""
    forward = verify_pass(batch, context, k)
    assert seconds(KERNELS_ONLY, forward, model, gpu) > seconds(Naive(), forward, model, gpu) / 1.1
    if gpu in ("h100-sxm", "h200-sxm", "rtx-4090") and model in MODELS[:3]:
        assert seconds(KERNELS_ONLY, forward, model, gpu) >= seconds(Naive(), forward, model, gpu)


@given(gpus, models, batches, contexts, draft_lengths, st.integers(1, 8192))
def test_op_groups_sum_to_the_pass(gpu, model, batch, context, k, chunk):
    forward = join_passes(verify_pass(batch, context, k), prefill_pass(chunk, cached=context))
    for cost in (Roofline(), Naive(), SDB_LINE):
        price = bound(cost, model, gpu).target.price(forward)
        groups = [getattr(price, group) for group in OP_GROUPS]
        assert all(value >= 0 and math.isfinite(value) for value in groups)
        assert price.seconds == pytest.approx(sum(groups), rel=1e-12)
        assert all(type(value) is float for value in price[:6])
        assert type(price.memory_bound) is bool


@given(st.integers(1, 64), contexts, draft_lengths, st.integers(1, 4096))
def test_one_mixed_pass_is_not_dearer_than_two_passes(batch, context, k, chunk):
    """Weights are read once: the point of batching prefill with decode."""
    verify, prefill = verify_pass(batch, context, k), prefill_pass(chunk)
    together = seconds(Roofline(), join_passes(verify, prefill))
    assert together <= seconds(Roofline(), verify) + seconds(Roofline(), prefill)
    assert together >= max(seconds(Roofline(), verify), seconds(Roofline(), prefill)) * (1 - 1e-12)


def test_nothing_costs_nothing():
    empty = ForwardPass(0, 0, 0, 0, NO_ATTENTION, NO_ATTENTION)
    for cost in (Roofline(), Naive(), SDB_LINE):
        assert bound(cost).target.price(empty).seconds == 0.0


@pytest.mark.parametrize("cost", [KERNELS_ONLY, Naive()], ids=["roofline", "naive"])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_verification_is_free_when_weights_dominate_and_full_price_when_compute_does(cost: CostModel, k: int):
    def ratio(batch: int) -> float:
        return seconds(cost, verify_pass(batch, 1, k)) / seconds(cost, plain_pass(batch, 1))

    def products(drafts: int) -> float:
        price = bound(cost).target.price(verify_pass(200_000, 1, drafts))
        return price.linear + price.lm_head

    assert ratio(1) == pytest.approx(1.0, abs=0.03)
    assert products(k) / products(0) == pytest.approx(k + 1, rel=0.03)
    # Attention starts one block per sequence whatever its number of new tokens, so the whole pass stays a little below.
    assert 0.85 * (k + 1) < ratio(200_000) < 1.01 * (k + 1)
    # 0.5 %: the kernel for several new tokens starts a little slower, which shows most at batch 1.
    assert all(a <= b * 1.005 for a, b in pairwise(ratio(batch) for batch in (1, 8, 64, 512)))


@pytest.mark.parametrize("cost", [Roofline(), Naive(), SDB_LINE], ids=["roofline", "naive", "linear"])
def test_bound_flag_at_both_ends(cost: CostModel):
    price = bound(cost).target.price
    assert price(plain_pass(1, 512)).memory_bound
    assert price(plain_pass(64, 16_000)).memory_bound
    assert not price(prefill_pass(8192)).memory_bound
    assert not price(verify_pass(512, 16, 7)).memory_bound


def scaled_profile(profile: Profile, factor: float) -> Profile:
    """All fixed times divided by `factor`."""

    def scale(value: object) -> object:
        if isinstance(value, Fit):
            times = {f: v / factor for f, v in value if f.endswith("_us") or "_ns_" in f if v is not None}
            return value.model_copy(update=times)
        return {key: scale(inner) for key, inner in value.items()} if isinstance(value, dict) else value

    return profile.model_copy(update={name: scale(value) for name, value in profile})


@pytest.mark.parametrize("gpu_name", ["h100-sxm", "rtx-4090"])
@pytest.mark.parametrize("factor", [0.5, 3.0])
@pytest.mark.parametrize("model_name", ["llama-3.1-8b", "mixtral-8x7b"])
def test_faster_hardware_and_overheads_scale_time(gpu_name: str, factor: float, model_name: str):
    gpu, model = find_gpu(gpu_name), find_model(model_name, Path())
    rates = {name: getattr(gpu, name) * factor for name in ("bf16", "memory_bandwidth", "link_bandwidth")}
    chosen = choose_profile(gpu)
    fast = ChosenProfile(scaled_profile(chosen.profile, factor), scaled_profile(find_profile("default"), factor), 0.0)
    costs = [
        RooflineCost(
            Stack(card, profile, 2, "bf16", "bf16").bind(model),
            EngineCosts(row_s=overhead, draft_token_s=2 * overhead, speculative_step_s=50 * overhead),
        )
        for card, profile, overhead in ((gpu, chosen, 9e-6), (gpu.model_copy(update=rates), fast, 9e-6 / factor))
    ]
    for forward in (plain_pass(7, 900), verify_pass(64, 300, 3), prefill_pass(2048), verify_pass(1, 30_000, 7)):
        slow_s, fast_s = (cost.price(forward).seconds for cost in costs)
        assert fast_s == pytest.approx(slow_s / factor, rel=1e-9)


@given(batches, contexts, draft_lengths)
def test_price_does_not_depend_on_what_was_priced_before(batch, context, k):
    forward = verify_pass(batch, context, k)
    fresh = Roofline().bind(deployment("llama-3.1-8b", "h100-sxm")).target
    assert fresh.price(forward) == bound(Roofline()).target.price(forward)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_work_and_adds_collectives(tp: int):
    one, many = (bound(Roofline(), "llama-3.1-70b", "h100-sxm", n).target.price(plain_pass(32, 2000)) for n in (1, tp))
    assert one.collective == 0.0
    assert many.collective > 0.0
    assert one.linear / tp < many.linear < one.linear
    assert many.seconds < one.seconds


def test_mixtures_of_experts_pay_for_verification_at_small_batch_only():
    """Distinct experts: dear at batch 1, nearly free once every expert is read anyway (compute stays hidden)."""
    ratio = {
        batch: seconds(KERNELS_ONLY, verify_pass(batch, 100, 3), "qwen3-30b-a3b")
        / seconds(KERNELS_ONLY, plain_pass(batch, 100), "qwen3-30b-a3b")
        for batch in (1, 8, 128)
    }
    dense = seconds(KERNELS_ONLY, verify_pass(1, 100, 3)) / seconds(KERNELS_ONLY, plain_pass(1, 100))
    assert ratio[1] > 1.4 > 1.05 > dense
    assert ratio[1] > ratio[128]


def test_long_context_makes_verification_relatively_cheaper():
    ratios = [
        seconds(KERNELS_ONLY, verify_pass(128, c, 3)) / seconds(KERNELS_ONLY, plain_pass(128, c))
        for c in (128, 1024, 8192, 65_536)
    ]
    assert all(later < earlier for earlier, later in pairwise(ratios))


def test_fa2_loses_its_decode_path_when_one_sequence_has_several_tokens():
    decode, chunk = plain_pass(8, 16_000), prefill_pass(16)
    for gpu, least in (("rtx-4090", 1.5), ("rtx-pro-6000-se", 1.2), ("h100-sxm", 1.0)):
        price = bound(KERNELS_ONLY, gpu=gpu).target.price
        growth = price(join_passes(decode, chunk)).attention / price(decode).attention
        assert growth > least
        assert (growth < 1.2) == (gpu == "h100-sxm")
