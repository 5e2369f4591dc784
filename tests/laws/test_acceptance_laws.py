"""Laws of the tape on every sample path."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.acceptance.iid import Iid
from sim.acceptance.per_depth import PerDepth
from sim.acceptance.spread import BetaSpread, LogitNormalSpread
from sim.acceptance.walk import walk
from sim.rng import Streams
from sim.workload.requests import RequestTable

rates = st.floats(0, 1)
seeds = st.integers(0, 2**32)
lengths = st.lists(st.integers(1, 90), min_size=1, max_size=6)
spreads = st.one_of(
    st.none(),
    st.sampled_from([0.5, 3.0, 40.0]).map(lambda c: BetaSpread(concentration=c)),
    st.sampled_from([0.2, 1.0, 3.0]).map(lambda sd: LogitNormalSpread(sd=sd)),
)


def table(output_tokens):
    output_tokens = np.asarray(output_tokens, dtype=np.int64)
    zeros = np.zeros(len(output_tokens), dtype=np.int64)
    return RequestTable(zeros, zeros + 1, output_tokens, zeros, np.ones(len(output_tokens), dtype=bool))


def steps_by_k(model, requests, seed, most=9):
    tape = model.tape(requests, most, Streams(seed))
    return [walk(tape, requests, k).steps for k in range(most + 1)]


@given(rates, spreads, lengths, seeds)
@settings(deadline=None)
def test_steps_never_rise_with_k(rate, spread, output_tokens, seed):
    requests = table(output_tokens)
    steps = steps_by_k(Iid(rate=rate, request_spread=spread), requests, seed)
    assert np.array_equal(steps[0], requests.output_tokens - 1)
    for fewer, more in pairwise(steps):
        assert np.all(more <= fewer)


@given(rates, rates, st.integers(1, 9), lengths, seeds)
@settings(deadline=None)
def test_steps_never_rise_with_alpha(one, other, k, output_tokens, seed):
    requests = table(output_tokens)
    low, high = (Iid(rate=rate).tape(requests, k, Streams(seed)) for rate in sorted((one, other)))
    assert np.all(high.accepted >= low.accepted)
    assert np.all(walk(high, requests, k).steps <= walk(low, requests, k).steps)


@given(rates, rates, st.sampled_from([0.3, 1.5]), st.integers(1, 6), lengths, seeds)
@settings(deadline=None)
def test_steps_never_rise_with_the_rate_of_requests_that_differ(one, other, sd, k, output_tokens, seed):
    """Same shift of logits per request: a higher centre is a higher rate for every request."""
    requests, spread = table(output_tokens), LogitNormalSpread(sd=sd)
    low, high = (Iid(rate=r, request_spread=spread).tape(requests, k, Streams(seed)) for r in sorted((one, other)))
    assert np.all(walk(high, requests, k).steps <= walk(low, requests, k).steps)


@given(rates, spreads, seeds)
@settings(deadline=None, max_examples=40)
def test_one_flag_per_position_gives_p_plus_tape_non_decreasing(rate, spread, seed):
    """The condition of the law, with drafts long enough not to be cut."""
    requests = table([50])
    accepted = Iid(rate=rate, request_spread=spread).tape(requests, 64, Streams(seed)).accepted.astype(np.int64)
    ends = np.arange(50) + accepted
    assert np.all(np.diff(ends[accepted < 64]) >= 0)


def test_the_law_does_not_hold_for_rates_that_rise_with_depth():
    steps = steps_by_k(PerDepth(rates=(0.2, 0.9), extend="last"), table([60] * 500), 5)
    assert any(np.any(more > fewer) for fewer, more in pairwise(steps))


@given(lengths, seeds, st.integers(1, 8))
@settings(deadline=None, max_examples=30)
def test_certain_and_impossible_drafts(output_tokens, seed, k):
    requests = table(output_tokens)
    decoded = requests.output_tokens - 1
    always, never = (Iid(rate=rate).tape(requests, k, Streams(seed)) for rate in (1.0, 0.0))
    assert np.all(always.accepted == k)
    assert np.all(never.accepted == 0)
    assert np.array_equal(walk(always, requests, k).steps, -(-decoded // (k + 1)))
    assert np.array_equal(walk(never, requests, k).steps, decoded)


@pytest.mark.parametrize("spread", [None, BetaSpread(concentration=4.0)])
def test_no_position_is_judged_twice_along_a_path(spread):
    """Why one uniform per position is enough: steps cover disjoint stretches of the output."""
    requests, k = table([120]), 4
    tape = Iid(rate=0.6, request_spread=spread).tape(requests, k, Streams(3))
    judged, position = [], 1
    while position < 120:
        accepted = min(int(tape.accepted[position]), k)
        judged += range(position, position + min(accepted + 1, k))
        position += accepted + 1
    assert len(judged) == len(set(judged))
