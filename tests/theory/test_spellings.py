"""Every spelling of one acceptance against the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.theory.spellings import (
    Spellings,
    from_accepted_per_step,
    from_alpha,
    from_conditional,
    from_tokens_per_step,
)

rates = st.lists(st.floats(0, 1), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("rate", "k", "alpha"), [(0.5379, 5, 0.8), (0.388, 3, 0.5963), (0.3116, 8, 0.7307), (0.7, 4, 0.8623)]
)
def test_acceptance_rate_is_not_alpha(rate, k, alpha):
    assert from_alpha(alpha, k).acceptance_rate == pytest.approx(rate, abs=1e-4)


def test_the_baseline_of_a_vllm_test():
    """Its per-position rates and its mean acceptance length: the length has the bonus token."""
    published = Spellings((0.730, 0.521, 0.355))
    assert published.tokens_per_step == pytest.approx(2.606)
    assert published.accepted_per_step == pytest.approx(1.606)
    assert published.acceptance_rate == pytest.approx(0.5353, abs=1e-4)
    assert published.conditional == pytest.approx((0.730, 0.7137, 0.6814), abs=1e-4)


@given(rates)
def test_conditional_and_marginal_are_inverse(conditional):
    spelt = from_conditional(tuple(conditional))
    again = from_conditional(spelt.conditional)
    assert again.marginal == pytest.approx(spelt.marginal, abs=1e-12)
    assert spelt.accepted_per_step == pytest.approx(spelt.acceptance_rate * len(conditional), abs=1e-9)


@given(st.floats(0, 1), st.integers(1, 12))
def test_all_roads_lead_to_the_same_alpha(alpha, k):
    spelt = from_alpha(alpha, k)
    for other in (
        from_tokens_per_step(spelt.tokens_per_step, k),
        from_accepted_per_step(spelt.accepted_per_step, k),
    ):
        assert other.marginal == pytest.approx(spelt.marginal, abs=1e-6)


def test_one_off_by_one_apart():
    """A length of 2.3 with the bonus is a count of 1.3 without it."""
    assert from_tokens_per_step(2.3, 3).marginal == from_accepted_per_step(1.3, 3).marginal
    with pytest.raises(ValueError, match=r"\[1, K\+1\]"):
        from_accepted_per_step(3.2, 3)


@pytest.mark.parametrize("bad", [(), (0.5, 0.6), (1.2,), (-0.1,), (float("nan"),)])
def test_refuses_what_is_no_marginal_rate(bad):
    with pytest.raises(ValueError, match="never increase"):
        Spellings(bad)


def test_refuses_conditional_rates_outside_0_to_1():
    with pytest.raises(ValueError, match="conditional"):
        from_conditional((0.5, 1.5))
