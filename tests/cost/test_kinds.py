"""What a scenario can write under `cost_model`, and what comes of it."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from sim.cost.base import COST_MODELS, CostModel, HostOverhead
from sim.cost.constant import Constant
from sim.cost.linear import Linear
from sim.cost.passes import plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Naive, Roofline, target_stack
from sim.cost.stack import EngineCosts, RooflineCost
from sim.errors import ScenarioError
from sim.hardware.catalogue import find_gpu
from sim.hardware.engine_profile import find_engine
from sim.hardware.profile import choose_profile
from sim.models.catalogue import find_model
from sim.models.draft_heads import eagle_head

ANY: TypeAdapter[CostModel] = TypeAdapter(Annotated[CostModel, COST_MODELS])


@pytest.fixture(scope="module")
def eagle(deploy):
    return deploy("llama-3.1-8b", "h100-sxm", drafter=eagle_head(find_model("llama-3.1-8b", Path()), "eagle3"))


def test_registered_kinds():
    assert {"roofline", "naive", "linear", "constant"} <= set(COST_MODELS.members())


def test_written_and_read_back():
    written = {"kind": "roofline", "host": {"base_ms": "1 ms"}, "per_draft_token_us": 4, "draft_launch_ms": "200 us"}
    model = ANY.validate_python(written)
    assert model == Roofline(host={"base_ms": 1.0}, per_draft_token_us=4.0, draft_launch_ms=0.2)
    assert ANY.validate_python(model.model_dump()) == model


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "roofline", "host": {"base": 1}},
        {"kind": "roofline", "per_draft_token_us": -1},
        {"kind": "linear"},
        {"kind": "constant", "target_ms": float("nan")},
        {"kind": "constant", "target_ms": "5 GB"},
        {"kind": "rofline"},
    ],
)
def test_refused(written):
    with pytest.raises(ValidationError):
        ANY.validate_python(written)


def test_unknown_profile_names_the_nearest(eagle):
    with pytest.raises(ScenarioError, match="did you mean h100-sxm"):
        Roofline(profile="h100-sxn").bind(eagle)


def test_roofline_defaults(eagle):
    cost = Roofline().bind(eagle)
    assert (cost.profile, cost.relative_error, cost.caveats) == ("h100-sxm/bf16", 0.08, ())
    vllm = find_engine("vllm")
    assert cost.draft_launch_s == vllm.draft_pass_ms.value * 1e-3
    host_ms = vllm.host_base_ms.value + 50 * vllm.host_per_request_ms.value
    assert cost.host.seconds(50) == pytest.approx(host_ms * 1e-3)
    kernels = Roofline(engine="none").bind(eagle).target
    for forward, rows in ((verify_pass(64, 500, 3), 256), (plain_pass(64, 500), 64)):
        extra = cost.target.price(forward).fixed - kernels.price(forward).fixed
        assert extra == pytest.approx(rows * vllm.per_row_us.value * 1e-6)


def test_stated_values_replace_those_of_the_engine(eagle):
    cost = Roofline(engine="sglang", host={"base_ms": 1.3}, draft_launch_ms=2.0, per_draft_token_us=9.0).bind(eagle)
    kernels = Roofline(engine="none").bind(eagle).target
    assert (cost.host.seconds(9), cost.draft_launch_s) == pytest.approx((1.3e-3, 2e-3))
    assert (cost.engine_error.per_row_s, cost.engine_error.draft_pass_s) == (0.0, 0.0)
    verify, plain = verify_pass(64, 500, 3), plain_pass(64, 500)
    fixed_s = find_engine("sglang").speculative_step_ms.value * 1e-3
    extra = cost.target.price(verify).fixed - kernels.price(verify).fixed
    assert extra == pytest.approx(64 * 3 * 9e-6 + fixed_s)
    assert cost.target.price(plain) == kernels.price(plain)


def test_an_engine_can_scale_kernels_and_read_the_kv_more_often(deploy):
    parts = target_stack(deploy("llama-3.1-8b", "h100-sxm"), choose_profile(find_gpu("h100-sxm"))).bind(
        find_model("llama-3.1-8b", Path())
    )
    kernels, verify, plain = RooflineCost(parts), verify_pass(64, 4000, 3), plain_pass(64, 4000)
    slow = RooflineCost(parts, EngineCosts(time_scale=1.2))
    assert slow.price(verify).seconds == pytest.approx(1.2 * kernels.price(verify).seconds)
    again = RooflineCost(parts, EngineCosts(kv_reads=2.0))
    assert again.price(plain) == kernels.price(plain)
    assert 1.8 < again.price(verify).attention / kernels.price(verify).attention < 2.0


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "words"),
    [
        ("llama-3.1-8b", "h200-sxm", "vllm", "kernels not measured, priced with profile h100-sxm"),
        ("mixtral-8x7b", "h100-sxm", "vllm", "mixture of experts"),
        ("deepseek-v3", "h100-sxm", "vllm", "FP8 blocks"),
        ("llama-3.1-8b", "h100-sxm", "llamacpp", "nothing was measured"),
    ],
)
def test_outside_of_what_was_checked_there_are_caveats(deploy, model, gpu, engine, words):
    caveats = Roofline(engine=engine).bind(deploy(model, gpu)).caveats
    assert any(words in caveat for caveat in caveats), caveats


def test_a_drafter_is_priced_by_its_own_shape(eagle):
    cost = Roofline().bind(eagle)
    draft, target = (model.price(plain_pass(1, 500)).seconds for model in (cost.draft, cost.target))
    assert 0.03 < draft / target < 0.08
    assert 0.07 < cost.draft_pass_seconds(plain_pass(1, 500)) / target < 0.15
    assert cost.draft.price(prefill_pass(4096)).seconds > 5 * draft


def test_without_a_drafter_the_draft_cost_is_the_target_cost(deploy):
    cost = Roofline().bind(deploy("llama-3.1-8b", "h100-sxm"))
    assert cost.draft is cost.target


def test_naive_has_no_fixed_costs(eagle):
    cost = Naive().bind(eagle)
    assert (cost.draft_launch_s, cost.host, cost.profile) == (0.0, HostOverhead(0.0, 0.0), "ideal/bf16")
    assert cost.target.price(verify_pass(8, 500, 3)).fixed == 0.0


def test_roofline_with_the_ideal_profile_is_naive(eagle):
    written = Roofline(profile="ideal", engine="none").bind(eagle)
    for forward in (plain_pass(9, 70), verify_pass(128, 900, 7), prefill_pass(3000)):
        assert written.target.price(forward) == Naive().bind(eagle).target.price(forward)


def test_linear(deploy):
    line = Linear(base_ms=5.886, per_token_us=21.0, per_kv_token_ns=39.3, host={"base_ms": 1.207})
    cost = line.bind(deploy("llama-3.1-8b", "h100-sxm"))
    price = cost.target.price(verify_pass(64, 996, 3))
    assert price.seconds == pytest.approx(5.886e-3 + 256 * 21e-6 + 64_000 * 39.3e-9)
    assert cost.host.seconds(64) == pytest.approx(1.207e-3)


def test_linear_needs_a_line_for_a_drafter(eagle):
    with pytest.raises(ScenarioError, match=r"cost_model\.draft"):
        Linear(base_ms=5.0).bind(eagle)
    cost = Linear(base_ms=5.0, draft={"base_ms": 0.5, "per_token_us": 1.0}).bind(eagle)
    assert cost.draft.price(plain_pass(10, 100)).seconds == pytest.approx(0.51e-3)


def test_constant_is_the_textbook(eagle):
    cost = Constant(target_ms=50.0, draft_ms=5.0).bind(eagle)
    assert cost.target.price(verify_pass(64, 10_000, 7)).seconds == cost.target.price(plain_pass(1, 1)).seconds == 0.05
    assert cost.draft.price(plain_pass(1, 1)).seconds == 0.005
    assert (cost.relative_error, cost.host.seconds(100), cost.draft_launch_s) == (0.0, 0.0, 0.0)


def test_constant_needs_a_time_for_a_drafter(eagle):
    with pytest.raises(ScenarioError, match=r"cost_model\.draft_ms"):
        Constant(target_ms=50.0).bind(eagle)


@pytest.mark.parametrize(
    ("model", "gpu", "weights", "profile", "error"),
    [
        ("llama-3.1-8b", "h100-sxm", "fp8", "h100-sxm/fp8", 0.08),
        ("llama-3.1-8b", "h200-sxm", "bf16", "h100-sxm/bf16", 0.15),
        ("llama-3.1-8b", "gb200", "nvfp4", "b200-sxm/nvfp4", 0.15),
        ("llama-3.1-8b", "a40", "bf16", "a100-sxm-80gb/bf16", 0.15),
        ("llama-3.1-8b", "l4", "bf16", "l40s/bf16", 0.15),
        ("llama-3.1-8b", "mi300x", "bf16", "default/bf16", 0.25),
        ("llama-3.1-8b", "a100-sxm-80gb", "fp8", "a100-sxm-80gb/fp8", 0.25),
        ("llama-3.1-8b", "h100-sxm", "int4", "h100-sxm/int4", 0.25),
        ("mixtral-8x7b", "h100-sxm", "bf16", "h100-sxm/bf16", 0.25),
        ("deepseek-v3", "h100-sxm", "fp8", "h100-sxm/fp8", 0.25),
    ],
)
def test_profile_and_trust(deploy, model, gpu, weights, profile, error):
    cost = Roofline().bind(deploy(model, gpu, weights=weights))
    assert (cost.profile, cost.relative_error) == (profile, error)


def test_weight_only_formats_save_bytes_but_not_compute(deploy):
    """FP8 on Ampere and INT4 anywhere: smaller reads, BF16 arithmetic."""
    wide, narrow = (Naive().bind(deploy("llama-3.1-8b", "a100-sxm-80gb", weights=w)).target for w in ("bf16", "fp8"))
    assert narrow.price(plain_pass(1, 1)).linear == pytest.approx(wide.price(plain_pass(1, 1)).linear / 2, rel=1e-2)
    assert narrow.price(prefill_pass(8192)).linear == pytest.approx(wide.price(prefill_pass(8192)).linear, rel=1e-2)


def test_fp8_kv_cache_is_cheaper_at_long_context(deploy):
    wide, narrow = (Roofline().bind(deploy("llama-3.1-8b", "h100-sxm", kv=kv)).target for kv in ("bf16", "fp8"))
    long = plain_pass(64, 8192)
    assert 0.5 < narrow.price(long).attention / wide.price(long).attention < 0.7
