"""Exact moments of the steps of two-state laws against closed forms and walks."""

import numpy as np
import pytest

from sim.acceptance.regime import Regime, regime_law
from sim.acceptance.two_state import TwoStates, two_state_moments, two_state_survival
from sim.acceptance.walk import walk
from sim.rng import Streams
from sim.theory import expected_tokens
from sim.workload.requests import RequestTable

ONE = np.ones(1)


def table(requests, tokens):
    zeros = np.zeros(requests, dtype=np.int64)
    return RequestTable(zeros, zeros + 1, zeros + tokens, zeros, np.ones(requests, dtype=bool))


def test_equal_states_are_iid():
    law = TwoStates(0.7 * ONE, 0.4 * ONE, np.full((1, 6, 2), 0.8), ONE)
    found = two_state_moments(law)
    assert found.tokens_per_step == pytest.approx([expected_tokens(0.8, k) for k in range(1, 7)])
    assert found.lag_correlation == pytest.approx(np.zeros(6), abs=1e-12)
    assert found.request_sd == pytest.approx(np.zeros(6))


def test_states_never_left_make_neighbours_alike():
    """Half of the requests accept everything, half nothing: correlation 1, and spread (K+1 - 1) / 2."""
    accept = np.stack((np.ones((4, 2)), np.zeros((4, 2))))
    law = TwoStates(np.ones(2), np.zeros(2), accept, np.array([0.5, 0.5]))
    found = two_state_moments(law)
    assert found.lag_correlation == pytest.approx(np.ones(4))
    assert found.request_sd == pytest.approx(np.arange(1, 5) / 2)


def test_means_agree_with_survivals_at_every_k():
    parameters = Regime(profile="sharegpt").resolved()
    found = two_state_moments(regime_law(parameters, 0.0, 10))
    for k in (1, 4, 10):
        survival = two_state_survival(regime_law(parameters, 0.0, k))
        assert found.tokens_per_step[k - 1] == pytest.approx(1 + survival.sum(), rel=1e-12)


@pytest.mark.parametrize("profile", ["gsm8k", "sharegpt"])
def test_a_walk_over_long_outputs_finds_them(profile):
    """400 requests of 8,000 tokens: spread within 4 x 1/sqrt(2 x 400), correlation within 0.02."""
    model, requests = Regime(profile=profile), table(400, 8000)
    exact = two_state_moments(regime_law(model.resolved(), 0.0, 10))
    tape = model.tape(requests, 10, Streams(2))
    for k in (1, 5, 10):
        found = walk(tape, requests, k)
        assert found.tokens_per_step == pytest.approx(exact.tokens_per_step[k - 1], abs=4 * found.tokens_per_step_error)
        assert found.request_sd == pytest.approx(exact.request_sd[k - 1], rel=4 / np.sqrt(800))
        assert found.lag_correlation == pytest.approx(exact.lag_correlation[k - 1], abs=0.02)


def test_statistics_of_a_walk_by_hand():
    """Two requests; the first takes steps of 2, 0 and 1 accepted drafts."""
    from sim.acceptance.base import Tape

    accepted = np.array([0, 2, 9, 9, 0, 1, 9, 0, 1, 9], dtype=np.uint8)
    requests = RequestTable(*(np.array(v) for v in ([0, 0], [1, 1], [7, 3], [0, 0])), np.ones(2, dtype=bool))
    found = walk(Tape(accepted), requests, 2)
    assert found.steps.tolist() == [3, 1]
    assert found.sums.tolist() == [[3, 5, 0, 2, 1], [1, 1, 0, 1, 1]]
    mean, variance = 4 / 4, (5 + 1) / 4 - 1.0
    pairs = [(2 - mean) * (0 - mean), (0 - mean) * (1 - mean)]
    assert found.lag_correlation == pytest.approx(np.mean(pairs) / variance)
    assert found.of(np.array([0, 0])).tokens_per_step == pytest.approx(12 / 6)
