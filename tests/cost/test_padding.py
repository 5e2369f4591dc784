"""CUDA-graph padding: sizes as captured, T(B) a step function that never lies below the smooth one."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.padding import NO_GRAPHS, captured_graphs, largest_captured
from sim.cost.passes import plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.cost.stack import RooflineCost, Stack
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.models.catalogue import find_model
from sim.scenario.build import set_up
from sim.scenario.load import load_mapping
from sim.theory.crossings import crossings

GRAPHS = captured_graphs(512)
CONTEXT = 300


def kernels(gpu: str, model: str = "llama-3.1-8b", largest: int = 512) -> RooflineCost:
    card = find_gpu(gpu)
    stack = Stack(card, choose_profile(card), 1, "bf16", "bf16", graphs=captured_graphs(largest))
    return RooflineCost(stack.bind(find_model(model, Path())))


def test_sizes_are_those_of_vllm():
    sizes = GRAPHS.sizes
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert sizes[-3:] == (480, 496, 512)
    assert (248 in sizes, 256 in sizes, 264 in sizes, 272 in sizes) == (True, True, False, True)
    assert captured_graphs(16).sizes == (1, 2, 4, 8, 16)
    assert captured_graphs(0) == NO_GRAPHS


@given(st.integers(1, 2000), st.integers(0, 1024))
def test_a_batch_goes_to_the_next_size_and_no_further(tokens, largest):
    graphs = captured_graphs(largest)
    padded = graphs.padded(tokens)
    assert padded >= tokens
    if graphs.sizes and tokens <= graphs.sizes[-1]:
        assert padded in graphs.sizes
        assert not any(tokens <= size < padded for size in graphs.sizes)
    else:
        assert padded == tokens


@pytest.mark.parametrize(
    ("gpu", "seqs", "k", "budget", "expected"),
    [
        ("h100-sxm", 256, 0, 8192, 512),
        ("h100-sxm", 64, 0, 8192, 128),
        ("h100-sxm", 64, 3, 8192, 512),
        ("h100-sxm", 256, 3, 300, 300),
        ("b200-sxm", 256, 3, 8192, 1024),
        ("gb300", 1024, 0, 8192, 1024),
        ("rtx-pro-6000-se", 256, 3, 8192, 512),
    ],
)
def test_largest_size(gpu, seqs, k, budget, expected):
    assert largest_captured(seqs, k, budget, find_gpu(gpu)) == expected


@given(st.integers(1, 700), st.integers(0, 7), st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b"]))
def test_never_below_unpadded_and_equal_at_a_size(batch, k, model):
    padded, smooth = kernels("h100-sxm", model), kernels("h100-sxm", model, 0)
    forward = verify_pass(batch, CONTEXT, k)
    here, there = padded.price(forward), smooth.price(forward)
    assert here.seconds >= there.seconds * (1 - 1e-12)
    assert here.attention == there.attention
    assert here.lm_head == there.lm_head  # logits are computed outside of the graph, for the sampled rows only
    if GRAPHS.padded(forward.num_tokens) == forward.num_tokens:
        assert here == there


def test_a_step_function_of_the_batch_up_to_the_largest_size():
    price = kernels("a100-sxm-80gb").price
    bodies = [price(plain_pass(b, CONTEXT)).linear for b in range(1, 601)]
    jumps = [b for b, (now, then) in enumerate(pairwise(bodies), start=1) if now != then]
    assert all(now <= then for now, then in pairwise(bodies))
    inside = [b for b in jumps if b < 512]
    assert inside == list(GRAPHS.sizes[:-1])  # flat up to each size, one step up after it
    assert [b for b in jumps if b >= 512] == list(range(512, 600))  # no graph, no padding


def test_steps_with_prefill_are_padded_too():
    """Piecewise graphs: all but attention runs at the next size."""
    padded, smooth = kernels("h100-sxm"), kernels("h100-sxm", largest=0)
    assert padded.price(prefill_pass(257)).linear == smooth.price(prefill_pass(272)).linear
    assert padded.price(prefill_pass(513)) == smooth.price(prefill_pass(513))


def test_several_crossings_are_all_found():
    """Where plain decoding steps up, speculation starts to pay again: the curve crosses 1 more than once."""
    batches = range(1, 129)
    found = {}
    for largest in (512, 0):
        price = kernels("a100-sxm-80gb", largest=largest).price
        cost = [price(verify_pass(b, CONTEXT, 3)).seconds / price(plain_pass(b, CONTEXT)).seconds for b in batches]
        if largest:
            drop = int(np.argmin(np.diff(np.log(cost[32:]))) + 32)
            tokens_per_step = (cost[drop] * cost[drop + 1]) ** 0.5
        found[largest] = crossings(list(batches), [float(np.log(tokens_per_step / c)) for c in cost])
    assert [crossing.direction for crossing in found[0]] == ["stops_paying"]
    ways = [crossing.direction for crossing in found[512]]
    assert len(ways) >= 3
    assert len(ways) % 2 == 1
    assert all(a != b for a, b in pairwise(ways))
    assert any(crossing.bracket == (drop + 1, drop + 2) for crossing in found[512])


def setup(graphs: str | None, arm: str = "eagle3"):
    cost_model = {"kind": "roofline"} | ({} if graphs is None else {"graphs": graphs})
    scenario = load_mapping(
        {
            "hardware": "h100-sxm", "model": "llama-3.1-8b", "cost_model": cost_model, "engine": {"max_num_seqs": 40},
            "arms": {
                "plain": {},
                "eagle3": {
                    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
                    "acceptance": {"kind": "iid", "rate": 0.7},
                },
            },
            "baseline": "plain",
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 4},
                "prompt_tokens": {"kind": "fixed", "value": 200}, "output_tokens": {"kind": "fixed", "value": 50},
            },
        }
    ).scenario  # fmt: skip
    return set_up(scenario, arm, Path())


def test_an_option_of_the_roofline_and_off_by_default():
    assert Roofline().graphs == "none"
    forward = verify_pass(9, CONTEXT, 3)  # 36 tokens -> 40
    none, pad, default = (setup(graphs).cost for graphs in ("none", "pad", None))
    assert default.target.price(forward) == none.target.price(forward)
    assert pad.target.price(forward).linear == none.target.price(verify_pass(10, CONTEXT, 3)).linear
    drafted = plain_pass(9, CONTEXT)
    assert pad.draft.price(drafted).linear == none.draft.price(plain_pass(16, CONTEXT)).linear


def test_every_arm_captures_for_its_own_drafts():
    assert [setup("pad", arm).deployment.max_cudagraph_capture_size for arm in ("plain", "eagle3")] == [80, 320]
