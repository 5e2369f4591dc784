"""Vectorised drawing against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.acceptance.positions import Positions, leading_accepts
from sim.acceptance.two_state import TwoStates, first_state_path, stationary_first, two_state_survival
from sim.rng import Streams
from sim.workload.requests import RequestTable

probabilities = st.floats(0, 1)


def table(output_tokens):
    output_tokens = np.asarray(output_tokens, dtype=np.int64)
    zeros = np.zeros(len(output_tokens), dtype=np.int64)
    return RequestTable(zeros, zeros + 1, output_tokens, zeros, np.ones(len(output_tokens), dtype=bool))


def test_trim_keeps_the_positions_of_the_outputs():
    positions = Positions(table([3, 1]), beyond=2)
    assert positions.lengths.tolist() == [5, 3]
    assert positions.starts.tolist() == [0, 5]
    assert positions.trim(np.arange(8)).tolist() == [0, 1, 2, 5]
    assert positions.per_row(np.array([7, 9])).tolist() == [7] * 5 + [9] * 3


@given(st.integers(0, 1000), st.integers(1, 7))
def test_leading_accepts_equals_a_loop(seed, k):
    flags = np.random.Generator(np.random.Philox(seed)).random((k, 40)) < 0.7
    counts = leading_accepts(lambda depth: flags[depth - 1], k)
    for position in range(40 - k):
        depth = 0
        while depth < k and flags[depth, position + depth]:
            depth += 1
        assert counts[position] == depth


def loop(uniforms, starts, stay, enter, initial):
    """The chain as its definition reads."""
    path, row = [], -1
    for index, uniform in enumerate(uniforms):
        if index in starts:
            row += 1
            path.append(uniform < initial[row])
        else:
            path.append(uniform < (stay if path[-1] else enter))
    return path


@given(probabilities, probabilities, st.integers(0, 1000))
def test_path_equals_a_loop_for_clinging_and_alternating_chains(stay, enter, seed):
    uniforms = np.random.Generator(np.random.Philox(seed)).random(60)
    starts, initial = np.array([0, 17, 18, 40]), np.array([0.0, 0.5, 1.0, 0.3])
    path = first_state_path(uniforms, starts, np.array(stay), np.array(enter), initial)
    assert path.tolist() == loop(uniforms, set(starts.tolist()), stay, enter, initial)
    flat = first_state_path(uniforms, starts, np.full(60, stay), np.full(60, enter), initial)
    assert np.array_equal(path, flat)


def test_path_has_the_stationary_share_and_the_stated_memory():
    stay, enter = np.array(0.9), np.array(0.05)
    uniforms = Streams(1).per_position("x", np.array([1_000_000]))
    path = first_state_path(uniforms, np.array([0]), stay, enter, stationary_first(stay, enter))
    assert path.mean() == pytest.approx(1 / 3, abs=0.005)  # about 7 standard errors of a chain this sticky: 0.0024
    assert path[1:][path[:-1]].mean() == pytest.approx(0.9, abs=0.002)
    assert path[1:][~path[:-1]].mean() == pytest.approx(0.05, abs=0.002)


def test_stationary_share_of_a_chain_that_never_moves():
    assert stationary_first(np.array([1.0, 0.0]), np.array([0.0, 1.0])).tolist() == [0.5, 0.5]


def survival(stay, enter, accept):
    one = np.array([1.0])
    return two_state_survival(TwoStates(np.array([stay]), np.array([enter]), np.array([accept]), one))


def test_exact_survival_of_one_state_is_a_running_product():
    rates = [0.8, 0.5, 0.9]
    assert survival(0.7, 0.2, [[q, q] for q in rates]) == pytest.approx(np.cumprod(rates))


def test_exact_survival_of_frozen_states_and_certain_acceptance():
    assert survival(1.0, 0.0, [[1.0, 0.0]] * 3).sum() == pytest.approx(1.5)  # half of the steps, equally often started
    assert survival(0.3, 0.4, [[1.0, 1.0]] * 4).tolist() == [1, 1, 1, 1]


def test_exact_survival_by_hand_for_one_draft():
    """K = 1, accepted iff easy. A step that starts easy consumes two positions, one that starts hard consumes one."""
    stay, enter = 0.8, 0.3
    two_on = stay * stay + (1 - stay) * enter  # easy again after two moves
    split = enter / (1 - two_on + enter)
    assert survival(stay, enter, [[1.0, 0.0]]) == pytest.approx([split])
