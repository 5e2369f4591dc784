"""Context decay, temperature factors, spread of requests: laws and exact means."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.acceptance.context_decay import ContextDecay
from sim.acceptance.histogram import Histogram
from sim.acceptance.iid import Iid
from sim.acceptance.length import Length
from sim.acceptance.regime import Level, Regime
from sim.acceptance.spread import BetaSpread, LogitNormalSpread
from sim.acceptance.walk import walk
from sim.rng import Streams
from sim.workload.requests import RequestTable


def table(prompts, outputs):
    zeros = np.zeros(len(prompts), dtype=np.int64)
    return RequestTable(zeros, np.array(prompts), np.array(outputs), zeros, np.ones(len(prompts), dtype=bool))


def drawn(model, requests, k, streams):
    return model.within_context(model.tape(requests, k, streams), requests, streams)


def decayed(training_tokens, keep_beyond, base=None):
    decay = ContextDecay(training_tokens=training_tokens, keep_beyond=keep_beyond)
    return (base or Iid(rate=0.8)).model_copy(update={"context_decay": decay})


@given(st.integers(1, 200), st.floats(0, 1), st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_decay_only_takes_away_and_only_beyond_the_window(training, keep, seed):
    requests = table([20, 60, 150], [40, 90, 30])
    before = drawn(Iid(rate=0.8), requests, 6, Streams(seed)).accepted
    after = drawn(decayed(training, keep), requests, 6, Streams(seed)).accepted
    assert np.all(after <= before)
    context = np.concatenate([p + np.arange(n) for p, n in ((20, 40), (60, 90), (150, 30))])
    inside = context + before < training  # all judged positions lie within the window
    assert np.array_equal(after[inside], before[inside])


def test_edges_of_decay():
    requests = table([20] * 50, [100] * 50)
    plain = drawn(Iid(rate=0.8), requests, 6, Streams(1)).accepted
    assert np.array_equal(drawn(decayed(10**6, 0.0), requests, 6, Streams(1)).accepted, plain)
    assert np.array_equal(drawn(decayed(1, 1.0), requests, 6, Streams(1)).accepted, plain)
    assert not drawn(decayed(1, 0.0), requests, 6, Streams(1)).accepted.any()


def test_far_beyond_the_window_rates_are_products():
    """One flag per position thinned by another: i.i.d. with rate 0.8 x 0.5, within 4 standard errors."""
    requests = table([500] * 400, [300] * 400)
    found = walk(drawn(decayed(100, 0.5), requests, 5, Streams(3)), requests, 5)
    exact = 1 + Iid(rate=0.4).survival(5).sum()
    assert found.tokens_per_step == pytest.approx(exact, abs=4 * found.tokens_per_step_error + 0.005)


@given(st.floats(0.1, 0.95), st.floats(0, 0.9), st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_steps_never_rise_with_what_is_kept(rate, keep, seed):
    """`p + tape[p]` stays non-decreasing, so the law of one flag per position holds with decay too."""
    requests, base = table([30, 80], [60, 90]), Iid(rate=rate)
    less = walk(drawn(decayed(50, keep, base), requests, 5, Streams(seed)), requests, 5)
    more = walk(drawn(decayed(50, keep + 0.1, base), requests, 5, Streams(seed)), requests, 5)
    assert np.all(more.steps <= less.steps)


def test_temperature_factor_scales_the_mean():
    level = Level(tokens_per_step=2.3, num_speculative_tokens=3, temperature_factor=0.92)
    assert 1 + Regime(profile="sharegpt", level=level).survival(3).sum() == pytest.approx(2.3 * 0.92, abs=1e-5)
    for shape, profile in (("geometric", None), ("min_variance", None), ("regime", "gsm8k")):
        model = Length(
            tokens_per_step=2.3, num_speculative_tokens=3, temperature_factor=0.92, shape=shape, profile=profile
        )
        assert 1 + model.survival(3).sum() == pytest.approx(2.3 * 0.92, abs=1e-5)
    with pytest.raises(ValidationError):
        Level(tokens_per_step=2.3, num_speculative_tokens=3, temperature_factor=1.1)


@pytest.mark.parametrize("spread", [BetaSpread(concentration=8), LogitNormalSpread(sd=0.7)])
def test_length_keeps_its_mean_with_a_spread(spread):
    model = Length(tokens_per_step=2.3, num_speculative_tokens=5, request_spread=spread)
    assert 1 + model.survival(5).sum() == pytest.approx(2.3, abs=1e-6)
    with pytest.raises(ValidationError, match="takes no request_spread"):
        Length(tokens_per_step=2.3, num_speculative_tokens=5, shape="min_variance", request_spread=spread)


def test_histogram_with_a_spread():
    requests = table([5] * 400, [300] * 400)
    same, differ = Histogram(counts=(3, 2, 2)), Histogram(counts=(3, 2, 2), request_spread=LogitNormalSpread(sd=0.8))
    spreads = [walk(one.tape(requests, 2, Streams(1)), requests, 2).request_sd for one in (same, differ)]
    assert spreads[1] > 2 * spreads[0]
