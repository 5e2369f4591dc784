"""Launches: what eager passes take at least, and what an engine hides of the fixed times of kernels."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.hardware.engine_profile import find_engine
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import load_mapping

LAYERS = 32


@pytest.fixture
def run_set_up() -> Callable[[dict[str, object]], ArmSetup]:
    """Llama-8B on 8 B200 in vLLM, with these engine arguments."""

    def bind(engine: dict[str, object]) -> ArmSetup:
        scenario = load_mapping(
            {
                "hardware": "b200-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}},
                "engine": {"tensor_parallel_size": 8, **engine},
                "workload": {"arrivals": {"kind": "closed", "max_concurrency": 4}},
            }
        ).scenario  # fmt: skip
        return set_up(scenario, "plain", Path())

    return bind


def eager_s(engine: str) -> float:
    return LAYERS * find_engine(engine).eager_layer_ms.value * 1e-3


def test_a_pass_with_a_prompt_takes_as_long_as_launching_it(deploy):
    """A prompt of 16 tokens on 8 GPUs computes for less than the launches take; one of 8000 does not."""
    deployment = deploy("llama-3.1-8b", "b200-sxm", tp=8)
    eager, kernels = (Roofline(engine=name).bind(deployment).target for name in ("trtllm", "none"))
    short, long = prefill_pass(16), prefill_pass(8000)
    assert kernels.price(short).seconds < eager_s("trtllm")
    assert eager.price(short).seconds == pytest.approx(eager_s("trtllm"))
    mixed = join_passes(short, plain_pass(4, 100))
    assert eager.price(mixed).seconds == pytest.approx(eager_s("trtllm"))
    assert eager.price(long).seconds > kernels.price(long).seconds * 0.7 > eager_s("trtllm")


@pytest.mark.parametrize("forward", [plain_pass(4, 100), verify_pass(4, 100, 7)])
def test_decode_and_verification_run_in_graphs(deploy, forward):
    price = Roofline(engine="trtllm").bind(deploy("llama-3.1-8b", "b200-sxm", tp=8)).target.price(forward)
    assert price.seconds < 0.5 * eager_s("trtllm")


def test_graphs_of_vllm_hold_prompts_up_to_the_captured_size(run_set_up):
    prices = {
        captured: run_set_up({"max_cudagraph_capture_size": captured}).cost.target.price(prefill_pass(600)).seconds
        for captured in (0, 599, 600, 2048)
    }
    assert prices[0] == prices[599] == pytest.approx(eager_s("vllm"))
    assert prices[600] == prices[2048] < prices[0]


def test_by_default_prompts_beyond_the_captured_size_are_launched(run_set_up):
    cost = run_set_up({"max_num_seqs": 4}).cost
    assert cost.target.price(prefill_pass(8)).seconds < eager_s("vllm")
    assert cost.target.price(prefill_pass(10)).seconds == pytest.approx(eager_s("vllm"))


def test_what_is_hidden_is_a_share_of_the_launches_and_never_more(deploy):
    """Between all and 1 - share of the kernels' time, in every op group; hardly anything of a long prompt."""
    deployment, share = deploy("llama-3.1-70b", "b200-sxm", tp=8), find_engine("trtllm").launch_overlap.value
    fewer, kernels = (Roofline(engine=name).bind(deployment).target for name in ("trtllm", "none"))
    for forward in (plain_pass(1, 1), plain_pass(64, 4000), verify_pass(8, 1000, 3)):
        ours, full = fewer.price(forward), kernels.price(forward)
        for group in ("linear", "attention", "collective"):
            assert (1 - share) * getattr(full, group) <= getattr(ours, group) * (1 + 1e-9)
            assert getattr(ours, group) < getattr(full, group)
        assert ours.fixed > 0
    long = prefill_pass(16_000)
    assert 0.97 < fewer.price(long).seconds / kernels.price(long).seconds < 1
