"""Laws of the closed forms: inverses, signs, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import theory
from sim.theory import NO_DRAFTER, FluidLoad, PassTimes

alphas, drafts = st.floats(0, 1), st.integers(1, 16)


@given(alphas, drafts)
def test_inversions_round_trip(alpha, k):
    omega = theory.expected_tokens(alpha, k)
    back = theory.alpha_from_tokens(min(omega, k + 1.0), k)
    assert theory.expected_tokens(back, k) == pytest.approx(omega, abs=1e-9)
    rate = min(theory.acceptance_rate(alpha, k), 1.0)
    again = theory.alpha_from_acceptance_rate(rate, k)
    assert theory.acceptance_rate(again, k) == pytest.approx(rate, abs=1e-9)


@given(alphas, drafts)
def test_expected_tokens_are_one_plus_the_survivals_and_the_mean_of_the_distribution(alpha, k):
    omega = theory.expected_tokens(alpha, k)
    assert theory.tokens_from_survival([alpha**i for i in range(1, k + 1)]) == pytest.approx(omega, abs=1e-12)
    distribution = theory.emitted_distribution(alpha, k)
    assert distribution @ np.arange(1, k + 2) == pytest.approx(omega, abs=1e-12)
    assert 1 <= omega <= k + 1


def test_expected_tokens_of_an_array():
    values = theory.expected_tokens(np.array([0.0, 0.5, 1.0]), 2)
    assert values.tolist() == [1.0, 1.75, 3.0]


@pytest.mark.parametrize("call", [(-0.1, 3), (1.1, 3), (math.nan, 3), (0.5, -1)])
def test_expected_tokens_refuses(call):
    with pytest.raises(ValueError, match="0 <= alpha <= 1"):
        theory.expected_tokens(*call)


@pytest.mark.parametrize("call", [(0.9, 3), (4.1, 3), (math.nan, 3), (1.0, 0)])
def test_alpha_from_tokens_refuses(call):
    with pytest.raises(ValueError, match=r"\[1, K\+1\]"):
        theory.alpha_from_tokens(*call)


@given(alphas, st.integers(1, 8), st.integers(1, 60))
def test_finite_steps_lie_between_the_bounds(alpha, k, length):
    steps = theory.iid_steps_of_output(alpha, k, length)
    decoded = length - 1
    assert math.ceil(decoded / (k + 1)) - 1e-9 <= steps.mean <= decoded + 1e-9
    assert steps.variance >= -1e-7


def test_finite_steps_by_enumeration():
    """n = 3 tokens, K = 1: a step emits 2 with probability a, else 1."""
    a = 0.3
    two = a * 1 + (1 - a) * 2
    assert theory.iid_steps_of_output(a, 1, 4).mean == pytest.approx(1 + a * 1 + (1 - a) * two)


def test_crossings_reports_all_with_direction_and_log2_interpolation():
    found = theory.crossings([1, 2, 8, 16, 32], [1.0, -1.0, -2.0, 2.0, 3.0])
    assert [(c.direction, c.bracket) for c in found] == [("stops_paying", (1, 2)), ("starts_paying", (8, 16))]
    assert found[0].value == pytest.approx(math.sqrt(2))
    assert found[1].value == pytest.approx(8 * math.sqrt(2))


def test_crossings_of_exact_zeros():
    assert theory.crossings([1, 2, 4], [1.0, 0.0, 1.0]) == ()
    (only,) = theory.crossings([1, 2, 4], [1.0, 0.0, -1.0])
    assert (only.value, only.bracket) == (2.0, (1.0, 4.0))
    assert theory.crossings([1, 2], [0.0, 0.0]) == ()
    assert theory.crossings([], []) == ()


@pytest.mark.parametrize(("xs", "ys"), [([1, 1], [1, 2]), ([0, 1], [1, 2]), ([1], [1, 2]), ([1, 2], [1, math.nan])])
def test_crossings_refuses(xs, ys):
    with pytest.raises(ValueError, match="crossings needs"):
        theory.crossings(xs, ys)


def test_break_even_signs():
    target = PassTimes(5e-3, 1e-6, 20e-6)
    dear = PassTimes(6e-3)
    assert theory.additive_break_even(target, dear, 2.0, 3).status == "never"
    assert theory.roofline_break_even(target, dear, 2.0, 3).status == "never"
    assert theory.additive_break_even(PassTimes(5e-3, 1e-3), NO_DRAFTER, 2.0, 3).status == "always"
    assert theory.roofline_break_even(target, NO_DRAFTER, 1.0, 3).value == 0.0


def test_break_even_that_starts_to_pay():
    """A heavy drafter with a thin KV cache on long contexts: reading the target's KV outweighs it at large batch."""
    target, drafter = PassTimes(5e-3, 1e-3, 1e-6), PassTimes(4e-3, 1e-5)
    for solve in (theory.additive_break_even, theory.roofline_break_even):
        result = solve(target, drafter, 2.0, 3)
        assert [crossing.direction for crossing in result.crossings] == ["starts_paying"]
        assert (result.status, result.value) == ("crosses", math.inf)


def test_roofline_break_even_with_two_crossings():
    """Starts to pay while KV-bound, stops when verification becomes compute-bound."""
    target, drafter = PassTimes(5e-3, 1e-4, 6e-5), PassTimes(2e-3)
    result = theory.roofline_break_even(target, drafter, 2.0, 3)
    assert [crossing.direction for crossing in result.crossings] == ["starts_paying", "stops_paying"]
    for crossing in result.crossings:
        plain = theory.roofline_pass_s(target, crossing.value, 1)
        verify = theory.roofline_pass_s(target, crossing.value, 4)
        assert 2.0 * plain == pytest.approx(verify + 3 * theory.additive_pass_s(drafter, crossing.value, 1))


def test_fluid_never_pays_with_a_dear_drafter():
    fluid = FluidLoad(5e-3, 20e-6, 9e-3, theory.expected_tokens(0.7, 4), 4)
    assert (fluid.break_even().status, fluid.break_even_batch()) == ("never", 0.0)


def test_fluid_break_even_is_the_additive_one_without_kv():
    omega = theory.expected_tokens(0.7, 4)
    batch = theory.additive_break_even(PassTimes(5e-3, 0, 20e-6), PassTimes(0.25e-3), omega, 4).value
    assert FluidLoad(5e-3, 20e-6, 1e-3, omega, 4, 10_000).break_even_batch() == pytest.approx(batch)


def test_saturated_queues_wait_for_ever():
    assert theory.md1_wait(1.0, 1.0) == theory.mmc_wait(2, 1.0, 1.0) == math.inf
    assert theory.pollaczek_khinchine_wait(1.0, 1.0, 1.0) == math.inf
    assert theory.erlang_c(3, 1.2) == 1.0


def test_deterministic_service_is_pollaczek_khinchine():
    assert theory.pollaczek_khinchine_wait(0.4, 2.0, 4.0) == pytest.approx(theory.md1_wait(0.8, 2.0))
