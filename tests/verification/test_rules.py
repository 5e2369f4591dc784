"""Golden values of single rules, and how they relate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.verification.block import Block
from sim.verification.chain import Chain, argmax_one_hot, block_of, normalised, pick, total_variation
from sim.verification.exact_match import ExactMatch
from sim.verification.greedy_draft import GreedyDraft
from sim.verification.greedy_match import GreedyMatch
from sim.verification.membership import Membership
from sim.verification.rejection_sampling import RejectionSampling
from sim.verification.relaxed import Relaxed
from sim.verification.typical import Typical

P, Q = (0.5, 0.3, 0.2), (0.2, 0.6, 0.2)
TOY = Chain.repeated(P, Q, 1)
weights = st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)


@pytest.mark.parametrize(
    ("rule", "acceptance"),
    [(RejectionSampling(), 0.70), (Block(), 0.70), (GreedyDraft(), 0.30), (ExactMatch(), 0.32), (GreedyMatch(), 0.0)],
)
def test_toy_pair(rule, acceptance):
    assert rule.outcome(TOY).acceptance == pytest.approx(acceptance, abs=1e-12)


def test_residual_of_the_toy_pair_is_its_first_token():
    assert RejectionSampling().recovered(np.array([P]), np.array([Q]), np.zeros(1, np.int64)).tolist() == [[1, 0, 0]]


def test_membership_is_not_the_target():
    found = Membership(top_k=2).outcome(TOY)
    assert found.acceptance == pytest.approx(0.8)
    assert found.first_token == pytest.approx([0.30, 0.66, 0.04], abs=1e-12)
    assert total_variation(found.output, block_of(TOY.target)) == pytest.approx(0.36, abs=1e-12)


@pytest.mark.parametrize(("k", "tokenwise", "block"), [(2, 10 / 9, 11 / 9), (3, 38 / 27, 5 / 3)])
def test_block_verification_golden(k, tokenwise, block):
    """Binary vocabulary of Sun et al.: 10/9 -> 11/9 accepted drafts at K = 2, 1.4074 -> 1.6667 at K = 3."""
    chain = Chain.repeated((1 / 3, 2 / 3), (2 / 3, 1 / 3), k)
    assert RejectionSampling().outcome(chain).mean_accepted == pytest.approx(tokenwise, abs=1e-12)
    assert Block().outcome(chain).mean_accepted == pytest.approx(block, abs=1e-12)


@settings(max_examples=80)
@given(p=weights, q=weights, k=st.integers(1, 5))
def test_block_never_accepts_less_than_token_by_token(p, q, k):
    chain = Chain.repeated(np.array(p) / sum(p), np.array(q) / sum(q), k)
    gain = Block().outcome(chain).mean_accepted - RejectionSampling().outcome(chain).mean_accepted
    assert gain >= -1e-12
    if k == 1:
        assert gain == pytest.approx(0.0, abs=1e-12)


@given(p=weights, q=weights)
def test_rejection_sampling_accepts_one_minus_total_variation_and_nothing_else_more(p, q):
    p, q = np.array(p) / sum(p), np.array(q) / sum(q)
    chain = Chain.repeated(p, q, 1)
    best = RejectionSampling().outcome(chain).acceptance
    assert best == pytest.approx(1 - total_variation(p, q), abs=1e-12)
    assert ExactMatch().outcome(chain).acceptance <= best + 1e-12
    assert ExactMatch().outcome(chain).acceptance == pytest.approx(float(p @ q), abs=1e-12)
    assert GreedyDraft().outcome(chain).acceptance == pytest.approx(p[int(np.argmax(q))], abs=1e-12)


@given(p=weights, q=weights, k=st.integers(1, 4))
def test_greedy_drafts_make_rules_equal(p, q, k):
    """With a one-hot q, block verification and exact match accept as `greedy_draft`; at temperature 0 all match."""
    p, q = np.array(p) / sum(p), np.array(q) / sum(q)
    one_hot = Chain.repeated(p, argmax_one_hot(q), k)
    expected = GreedyDraft().outcome(Chain.repeated(p, q, k)).accepted
    for rule in (RejectionSampling(), Block(), ExactMatch()):
        assert rule.outcome(one_hot).accepted == pytest.approx(expected, abs=1e-12)
    cold = Chain.repeated(argmax_one_hot(p), argmax_one_hot(q), k)
    expected = GreedyMatch().outcome(Chain.repeated(p, q, k)).accepted
    for rule in (RejectionSampling(), Block(), ExactMatch(), GreedyDraft()):
        assert rule.outcome(cold).accepted == pytest.approx(expected, abs=1e-12)


def test_typical_threshold():
    """Entropy of P is 1.0297: the threshold is min(0.09, 0.3 x 0.3571) = 0.09; a flatter p lowers it."""
    assert Typical().acceptance(np.array(P), np.array(Q)).tolist() == [1.0, 1.0, 1.0]
    flat = np.array([0.07, *[0.93 / 20] * 20])
    entropy = -(flat * np.log(flat)).sum()
    assert 0.3 * np.exp(-entropy) < 0.02
    assert Typical().acceptance(flat, flat)[0] == 1.0
    assert Typical(entropy_factor=1.0, threshold=1.0).acceptance(np.array(P), np.array(Q)).tolist() == [1.0, 0.0, 0.0]


def test_relaxed_candidates():
    p, d = np.array([0.4, 0.3, 0.2, 0.1]), np.full(4, 0.25)
    assert Relaxed(relaxed_topk=3, relaxed_delta=0.15).acceptance(p, d).tolist() == [1, 1, 0, 0]
    assert Relaxed(relaxed_topk=3, relaxed_delta=0.6).acceptance(p, d).tolist() == [1, 1, 1, 0]
    for strict in ({"relaxed_topk": 1}, {"relaxed_delta": 0}):  # greedy_match under another name, and lossless
        with pytest.raises(ValidationError):
            Relaxed(**strict)


def test_membership_sets():
    p, d = np.array([0.4, 0.3, 0.2, 0.1]), np.full(4, 0.25)
    assert Membership(top_p=0.7).acceptance(p, d).tolist() == [1, 1, 0, 0]
    assert Membership(top_p=0.71).acceptance(p, d).tolist() == [1, 1, 1, 0]
    assert Membership(top_p=0.71, top_k=1).acceptance(p, d).tolist() == [1, 0, 0, 0]
    with pytest.raises(ValidationError, match="needs top_k or top_p"):
        Membership()


def test_chains_refuse_what_is_no_distribution():
    for p, q, k in ((P, (0.5, 0.5), 1), ((0.5, 0.6), (0.5, 0.5), 1), ((1.5, -0.5), (0.5, 0.5), 1), (P, Q, 0)):
        with pytest.raises(ValueError):
            Chain.repeated(p, q, k)
    with pytest.raises(ValueError, match="blocks"):
        Chain.repeated(P, Q, 20)


def test_tokens_without_mass_are_never_picked():
    rows = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]] * 3)
    assert pick(rows, np.array([0.0, 0.5, np.nextafter(1, 0)])).tolist() == [1, 3, 3]
    assert normalised(np.zeros((1, 2)), np.array([[0.25, 0.75]])).tolist() == [[0.25, 0.75]]
