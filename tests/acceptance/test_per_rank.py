"""Acceptance by rank: trees against path products and a slow walk, chains against the kinds that describe chains."""

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from sim.acceptance.base import NEVER, Tape
from sim.acceptance.depth import DEPTH_STREAM
from sim.acceptance.histogram import Histogram
from sim.acceptance.iid import Iid
from sim.acceptance.length import Length
from sim.acceptance.ngram_markov import NgramMarkov
from sim.acceptance.per_depth import PerDepth
from sim.acceptance.per_position import PerPosition
from sim.acceptance.per_rank import PerRank
from sim.acceptance.positions import Positions
from sim.acceptance.regime import Regime
from sim.acceptance.spread import BetaSpread
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.theory.draft_trees import DraftTree, FixedShape, GrownShape, best_tree, tree_of_widths
from sim.workload.requests import RequestTable

P = (0.7, 0.12, 0.05, 0.03)
BEST = FixedShape(best_tree(np.tile(P, (8, 1)), 31))
SPREAD = BetaSpread(concentration=12)


def table(lengths) -> RequestTable:
    lengths = np.asarray(lengths, np.int64)
    zeros = np.zeros(len(lengths), np.int64)
    return RequestTable(zeros, zeros + 10, lengths, zeros, np.ones(len(lengths), bool))


@pytest.mark.parametrize("spread", [None, SPREAD])
def test_a_chain_is_the_tree_of_width_one(spread) -> None:
    requests = table([50, 1, 200])
    rank = PerRank(rates=P, deeper=((0.5, 0.2),), request_spread=spread)
    depth = PerDepth(rates=(0.7, 0.5), extend="last", request_spread=spread)
    assert np.array_equal(rank.tape(requests, 6, Streams(3)).accepted, depth.tape(requests, 6, Streams(3)).accepted)
    assert rank.survival(6) == pytest.approx(depth.survival(6), rel=1e-12)
    flat = PerRank(rates=P).tape(requests, 6, Streams(3)).accepted
    assert np.array_equal(flat, Iid(rate=0.7).tape(requests, 6, Streams(3)).accepted)


def test_survival_is_the_sum_of_path_products() -> None:
    assert 1 + PerRank(rates=P).tree_survival(BEST, 31).sum() == pytest.approx(
        1 + BEST.fixed.path_products(np.tile(P, (8, 1))).sum(), rel=1e-12
    )
    shallow = FixedShape(tree_of_widths((2, 2)))
    model = PerRank(rates=(0.6, 0.2), deeper=((0.4, 0.1),))
    assert model.tree_survival(shallow, 6).tolist() == pytest.approx([0.8, 0.8 * 0.5])
    assert model.tree_survival(shallow, 3).tolist() == pytest.approx([0.8, 0.6 * 0.4])


@pytest.mark.parametrize("confidence", [0.0, 0.2])
@pytest.mark.parametrize("spread", [None, SPREAD])
@pytest.mark.parametrize("shape", [BEST, GrownShape(31, 6, 6)], ids=["static", "grown"])
def test_simulated_tokens_per_step_are_the_exact_ones(shape, spread, confidence: float) -> None:
    """Within 3 standard errors over 500 requests of 800 tokens (and 0.001, for their ends), whole tree and cut."""
    model, requests = PerRank(rates=P, confidence_spread=confidence, request_spread=spread), table([800] * 500)
    tape = model.tree_tape(requests, shape, Streams(11))
    tape.check()
    for k in (31, 9, 1):
        found = walk(tape, requests, k)
        emitted = 1 + model.tree_survival(shape, k).sum()
        assert 1 + found.survival.sum() == pytest.approx(emitted, abs=3 * found.tokens_per_step_error + 1e-3)


def test_every_step_walks_down_the_ranks_of_the_text() -> None:
    """Against a walk node by node, from the same uniforms."""
    requests, streams = table([40, 7, 90]), Streams(5)
    tree = DraftTree(((0,), (1,), (0, 1), (0, 0), (2,), (1, 0), (0, 0, 1), (0, 1, 0)))
    reach = PerRank(rates=P).tree_tape(requests, FixedShape(tree), streams).reach
    positions = Positions(requests, 3)
    draws = positions.uniforms(streams, DEPTH_STREAM)
    place = {node: at for at, node in enumerate(tree.nodes, 1)}
    for row, (start, offset) in enumerate(zip(positions.starts, requests.output_offset, strict=True)):
        for position in range(requests.output_tokens[row]):
            node: tuple[int, ...] = ()
            walked = []
            for u in draws[start + position : start + position + 3]:
                node = (*node, int(np.searchsorted(np.cumsum(P), u, side="right")))
                if node not in place:
                    break
                walked.append(place[node])
            assert reach[offset + position].tolist() == (walked + [NEVER] * 3)[:3]


def test_a_larger_tree_never_accepts_less_at_the_same_start() -> None:
    requests, model = table([300] * 20), PerRank(rates=P)
    trees = [FixedShape(BEST.fixed.first(n)) for n in (1, 4, 12, 31)]
    accepted = [model.tree_tape(requests, FixedShape(tree.fixed), Streams(2)).accepted for tree in trees]
    assert all((a <= b).all() for a, b in pairwise(accepted))
    whole = model.tree_tape(requests, BEST, Streams(2))
    assert all(np.array_equal(whole.at(len(t.fixed.nodes)), a) for t, a in zip(trees, accepted, strict=True))


def test_confidence_pays_only_where_trees_follow_it() -> None:
    grown, tokens = GrownShape(15, 6, 6), lambda s, c: PerRank(rates=P, confidence_spread=c).tree_survival(s, 15).sum()
    assert tokens(grown, 0.2) > tokens(grown, 0.1) > tokens(grown, 0.0)
    static = FixedShape(best_tree(np.tile(P, (6, 1)), 15))
    assert tokens(static, 0.2) == pytest.approx(tokens(static, 0.0), rel=1e-12)
    assert tokens(static, 0.0) == pytest.approx(tokens(grown, 0.0), rel=1e-12)


def test_a_tape_of_a_tree_counts_the_nodes_that_are_verified() -> None:
    tape = Tape(np.array([2, 0, 1], np.uint8), reach=np.array([[1, 6], [NEVER, NEVER], [4, NEVER]], np.uint8))
    tape.check()
    assert [tape.at(k).tolist() for k in (0, 1, 4, 6)] == [[0, 0, 0], [1, 0, 0], [1, 0, 1], [2, 0, 1]]
    assert tape.taken(np.array([0, 0, 2]), np.array([5, 6, 3])).tolist() == [1, 2, 0]
    assert tape.tree_depth == 2
    for wrong in ([[2, 1]], [[1, 1]], [[0, 1]]):
        with pytest.raises(ValueError, match="before its parents"):
            Tape(np.array([2], np.uint8), reach=np.array(wrong, np.uint8)).check()


@pytest.mark.parametrize(
    "model",
    [
        Length(tokens_per_step=2.5, num_speculative_tokens=8),
        Histogram(counts=(5, 3, 2, 1, 1, 1, 1, 1, 1)),
        PerPosition(rates=(0.7, 0.5, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1)),
    ],
)
def test_measured_counts_hold_for_the_whole_tree_only(model) -> None:
    requests = table([200] * 5)
    tape = model.tree_tape(requests, BEST, Streams(1))
    tape.check()
    assert np.array_equal(tape.at(31), model.tape(requests, 8, Streams(1)).accepted)
    assert not tape.at(30).any()
    assert model.tree_survival(BEST, 31) == pytest.approx(model.survival(8))
    with pytest.raises(ScenarioError, match="whole tree of 31 nodes, not for 30"):
        model.tree_survival(BEST, 30)


@pytest.mark.parametrize(
    "model", [Iid(rate=0.5), PerDepth(rates=(0.5,) * 8), Regime(profile="gsm8k"), NgramMarkov(profile="gsm8k")]
)
def test_kinds_that_describe_chains_say_what_to_write_instead(model) -> None:
    for call in (lambda: model.tree_tape(table([5]), BEST, Streams(0)), lambda: model.tree_survival(BEST, 31)):
        with pytest.raises(ScenarioError, match=r"describes a chain.*per_rank.*length"):
            call()


def test_a_mean_length_belongs_to_a_depth() -> None:
    with pytest.raises(ScenarioError, match="measured with 3 drafts at most per step, but this tree is 8 deep"):
        Length(tokens_per_step=2.5, num_speculative_tokens=3).tree_survival(BEST, 31)


def test_confidence_is_followed_to_a_depth_only() -> None:
    model = PerRank(rates=P, confidence_spread=0.1)
    with pytest.raises(ScenarioError, match="to depth 10, but this tree is 11 deep"):
        model.tree_survival(GrownShape(20, 11, 4), 20)
    assert len(model.tree_survival(FixedShape(best_tree(np.tile(P, (12, 1)), 40)), 40)) <= 12


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rates": (0.7, 0.4)}, "at most 1"),
        ({"rates": (0.1, 0.2)}, "fall with the rank"),
        ({"rates": (0.4, 0.3), "confidence_spread": 0.2}, "fall with the rank"),
        ({"rates": (0.9,), "confidence_spread": 0.2}, "out of 0..1"),
        ({"rates": (0.9,), "deeper": ((0.1, 0.2),)}, "fall with the rank"),
    ],
)
def test_rates_that_cannot_be_are_refused(values, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PerRank(**values)
