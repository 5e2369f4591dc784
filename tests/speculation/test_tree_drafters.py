"""What drafting a tree costs, pass by pass, and what Medusa heads weigh."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import ValidationError

from sim.cost.base import BoundCost, ForwardPass, HostOverhead, PassPrice
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model
from sim.speculation.base import DraftWork
from sim.speculation.eagle import Eagle
from sim.speculation.known_trees import known_tree
from sim.speculation.medusa import Medusa

TARGET = find_model("llama-3.1-8b", Path())
DYNAMIC = {"kind": "dynamic", "depth": 8, "top_k": 10, "level_us": 0}
MEDUSA_TREE = {"kind": "named", "name": "medusa_7b_63"}
#: Of Llama-3.1-8B and one more layer, 16 bits; both ways at the bandwidth of an H100.
COMPACTION_S = 2 * 33 * 4096 / 3.35e12


@dataclass
class Spy:
    """1 us per token and 1 ns per KV token read; remembers what it was asked."""

    passes: list[ForwardPass] = field(default_factory=list)

    def price(self, forward: ForwardPass) -> PassPrice:
        self.passes.append(forward)
        kv = forward.decode.kv_tokens_read + forward.extend.kv_tokens_read
        seconds = 1e-6 * forward.num_tokens + 1e-9 * kv
        return PassPrice(seconds, seconds, 0.0, 0.0, 0.0, 0.0, True)


def bound(method, kv_bytes: int = 33 * 4096):
    spy, memory = Spy(), MemoryBudget(0, 0, 0, 0, 0, 0, 0, kv_bytes)
    cost = BoundCost(spy, spy, HostOverhead(0.0, 0.0), 0.0, "test", 0.0)
    deployment = Deployment(
        TARGET, method.drafter_model(TARGET, Path()), find_gpu("h100-sxm"), 1, 1, "bf16", "bf16", 16, 1000, memory
    )
    return method.bind(deployment, cost), spy


def eagle(k: int, tree, **more) -> Eagle:
    return Eagle.model_validate({"method": "eagle3", "num_speculative_tokens": k, "tree": tree, **more})


def test_a_dynamic_tree_takes_a_pass_per_level() -> None:
    """EAGLE's 60 / 7 / 10: one pass over root and path, then 7 of 10 tokens; asked for once, at their mean context."""
    drafter, spy = bound(eagle(59, DYNAMIC))
    n, context = 4, 100
    seconds = drafter.draft_seconds(DraftWork(verify_pass(n, context, 59), n, n * 101, 59))
    first, level = spy.passes
    assert (first.num_tokens, first.num_logit_rows, first.num_draft_tokens) == (n * 9, n, 0)
    assert first.extend.kv_tokens_read == n * (context + 9)
    assert (level.num_seqs, level.num_tokens, level.num_logit_rows) == (n, n * 10, n * 10)
    assert level.extend.kv_tokens_read == n * (101 + 30 + 10)
    passes = [n * 9e-6 + n * 109e-9] + [n * 10e-6 + n * (101 + 10 * i + 10) * 1e-9 for i in range(7)]
    assert seconds == pytest.approx(sum(passes) + n * 8 * COMPACTION_S, rel=1e-9)


def test_choosing_nodes_takes_its_time_per_level() -> None:
    work = DraftWork(verify_pass(4, 100, 59), 4, 404, 59)
    without, with_default = (
        bound(eagle(59, tree))[0].draft_seconds(work) for tree in (DYNAMIC, DYNAMIC | {"level_us": 140})
    )
    assert with_default - without == pytest.approx(8 * 140e-6, rel=1e-9)


def test_a_static_tree_expands_the_nodes_with_children() -> None:
    drafter, spy = bound(eagle(25, {"kind": "named", "name": "eagle_25"}))
    drafter.draft_seconds(DraftWork(verify_pass(2, 50, 25), 2, 102, 25))
    assert [forward.num_tokens for forward in spy.passes] == [2 * 6, 2 * 4, 2 * 1]
    spy.passes.clear()
    drafter.draft_seconds(DraftWork(verify_pass(2, 50, 25), 2, 102, 12))  # the next tree has its first two levels only
    assert [forward.num_tokens for forward in spy.passes] == [2 * 6, 2 * 4]


def test_the_first_pass_takes_in_prompts_whole_and_runs_for_k_0() -> None:
    drafter, spy = bound(eagle(59, DYNAMIC))
    mixed = join_passes(verify_pass(4, 100, 59), prefill_pass(512))
    drafter.draft_seconds(DraftWork(mixed, 5, 5 * 200, 0))
    (first,) = spy.passes
    assert first.num_tokens == 4 * 9 + 512
    assert first.num_logit_rows == 0


def test_a_tree_of_width_one_costs_what_a_chain_does_but_for_padding_and_compaction() -> None:
    chain, chain_spy = bound(Eagle(method="eagle3", num_speculative_tokens=5))
    tree, tree_spy = bound(eagle(5, {"kind": "widths", "widths": [1, 1, 1, 1, 1]}), kv_bytes=0)
    work = DraftWork(verify_pass(8, 300, 5), 8, 8 * 301, 5)
    chain_s, tree_s = chain.draft_seconds(work), tree.draft_seconds(work)
    assert [f.num_tokens for f in chain_spy.passes] == [f.num_tokens for f in tree_spy.passes]
    # The mean pass of a chain stands half a token per sequence further on.
    assert tree_s == pytest.approx(chain_s, abs=4 * 8 * 2e-9)


@pytest.mark.parametrize(
    ("k", "tree", "slots"),
    [
        (59, DYNAMIC, 80 - 60),
        (7, {"kind": "dynamic", "depth": 5, "top_k": 4}, 20 - 8),
        (25, {"kind": "named", "name": "eagle_25"}, 0),
    ],
)
def test_look_ahead_is_what_sglang_holds_beyond_the_nodes(k: int, tree, slots: int) -> None:
    """max(num_steps x topk, num_draft_tokens) slots per request, the latter for the nodes under verification."""
    method = eagle(k, tree)
    assert method.lookahead_tokens == slots
    assert eagle(k, tree).num_draft_passes(k) == method.max_accepted_tokens


def test_medusa_heads_run_once_over_one_state_per_request() -> None:
    chain, chain_spy = bound(Medusa(num_speculative_tokens=4))
    tree, tree_spy = bound(Medusa.model_validate({"num_speculative_tokens": 63, "tree": MEDUSA_TREE}))
    for drafter, spy, k in ((chain, chain_spy, 4), (tree, tree_spy, 63)):
        seconds = drafter.draft_seconds(DraftWork(verify_pass(6, 100, k), 6, 606, k))
        (heads,) = spy.passes
        assert (heads.num_tokens, heads.num_logit_rows, heads.decode.num_seqs) == (6, 6, 0)
        assert seconds == pytest.approx(6e-6 + (6 * 4 * COMPACTION_S if k == 63 else 0.0), rel=1e-9)
        assert drafter.draft_seconds(DraftWork(plain_pass(6, 100), 6, 606, 0)) == 0.0


def test_medusa_heads_weigh_a_block_and_an_lm_head_each_and_have_no_kv() -> None:
    method = Medusa(num_speculative_tokens=3, num_heads=5)
    heads = method.drafter_model(TARGET, Path())
    assert heads.weight_bytes() == pytest.approx(5 * 2 * (4096**2 + 128_256 * 4096), rel=1e-5)  # but for a norm
    assert heads.kv_bytes_per_token() == 0
    assert method.lookahead_tokens == 0


def test_published_trees() -> None:
    assert known_tree("medusa_7b_63").widths == (10, 28, 23, 2)
    assert known_tree("eagle_25").widths == (4, 8, 8, 3, 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_speculative_tokens": 24, "tree": {"kind": "named", "name": "eagle_25"}}, "found 24; this tree has 25"),
        ({"num_speculative_tokens": 4, "tree": DYNAMIC}, "allow 8 to 710"),
        (
            {"num_speculative_tokens": 7, "tree": {"kind": "optimal", "rates": [0.5, 0.3], "depth": 2}},
            "hold 6 nodes, not 7",
        ),
        ({"num_speculative_tokens": 2, "tree": {"kind": "nodes", "nodes": [[0], [1, 0]]}}, "without it"),
        (
            {"num_speculative_tokens": 2, "tree": {"kind": "optimal", "rates": [0.3, 0.5], "depth": 2}},
            "fall with the rank",
        ),
    ],
)
def test_trees_that_cannot_be_are_refused(config, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Eagle.model_validate({"method": "eagle", **config})


def test_medusa_needs_a_head_per_depth_and_a_static_tree() -> None:
    with pytest.raises(ValidationError, match="4 deep needs as many heads"):
        Medusa.model_validate({"num_speculative_tokens": 63, "num_heads": 3, "tree": MEDUSA_TREE})
    with pytest.raises(ValidationError, match="static tree"):
        Medusa.model_validate({"num_speculative_tokens": 59, "tree": DYNAMIC})
