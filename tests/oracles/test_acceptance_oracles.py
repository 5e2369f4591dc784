"""Drawn tapes against closed forms: means within 3 standard errors over a million steps, chi-square of the counts."""

import numpy as np
import pytest
from scipy import stats

from sim import theory
from sim.acceptance.histogram import Histogram
from sim.acceptance.iid import Iid
from sim.acceptance.per_depth import PerDepth
from sim.acceptance.per_position import PerPosition
from sim.acceptance.spread import BetaSpread, LogitNormalSpread, pooled_survival, quantile_nodes
from sim.acceptance.walk import walk
from sim.rng import Streams
from sim.workload.requests import RequestTable


def table(num_rows, output_tokens):
    zeros = np.zeros(num_rows, dtype=np.int64)
    return RequestTable(zeros, zeros + 1, zeros + output_tokens, zeros, np.ones(num_rows, dtype=bool))


def counts_of(model, k, num_rows=1000, output_tokens=3000, seed=20):
    requests = table(num_rows, output_tokens)
    return walk(model.tape(requests, k, Streams(seed)), requests, k).accepted_counts


@pytest.mark.parametrize(("alpha", "k", "rows"), [(0.5, 3, 700), (0.7, 5, 1000), (0.8, 4, 1200), (0.9, 8, 2100)])
def test_mean_tokens_per_step_of_a_million_steps(alpha, k, rows):
    counts = counts_of(Iid(rate=alpha), k, num_rows=rows)
    steps = counts.sum()
    assert steps >= 1e6
    mean = 1 + counts @ np.arange(k + 1) / steps
    error = np.sqrt(theory.variance_of_tokens(alpha, k) / steps)
    assert abs(mean - theory.expected_tokens(alpha, k)) < 3 * error


MODELS = [
    (Iid(rate=0.7), 5),
    (Iid(rate=0.95), 15),
    (PerPosition(rates=(0.73, 0.521, 0.355)), 3),
    (PerPosition(rates=(0.73, 0.521, 0.355)), 2),
    (PerDepth(rates=(0.6, 0.65, 0.75), extend="last"), 6),
    (Histogram(counts=(30, 5, 0, 65)), 3),
]


@pytest.mark.parametrize(("model", "k"), MODELS)
def test_accepted_counts_follow_the_stated_distribution(model, k):
    counts = counts_of(model, k)
    at_least = np.concatenate(([1.0], model.survival(k), [0.0]))
    expected = -np.diff(at_least)
    seen = expected > 0
    assert counts[~seen].sum() == 0
    assert stats.chisquare(counts[seen], expected[seen] / expected[seen].sum() * counts.sum()).pvalue > 0.001


@pytest.mark.parametrize(
    ("alpha", "k", "length"), [(0.8, 4, 8), (0.8, 4, 128), (0.6, 4, 128), (0.7, 3, 64), (0.8, 5, 128)]
)
def test_steps_of_finite_outputs(alpha, k, length):
    requests = table(20_000, length)
    steps = walk(Iid(rate=alpha).tape(requests, k, Streams(2)), requests, k).steps
    exact = theory.iid_steps_of_output(alpha, k, length)
    assert abs(steps.mean() - exact.mean) < 3 * np.sqrt(exact.variance / len(steps))
    assert steps.var() == pytest.approx(exact.variance, rel=5 * np.sqrt(2 / len(steps)))


def test_step_lengths_along_a_path_are_independent():
    """Renewal: the counts of two following steps are uncorrelated under i.i.d. acceptance."""
    requests = table(1, 400_000)
    tape, k = Iid(rate=0.7).tape(requests, 4, Streams(9)), 4
    emitted, position = [], 1
    while position < 400_000:
        emitted.append(min(int(tape.accepted[position]), k) + 1)
        position += emitted[-1]
    lag = np.corrcoef(emitted[:-1], emitted[1:])[0, 1]
    assert abs(lag) < 3 / np.sqrt(len(emitted))


@pytest.mark.parametrize("concentration", [10.0, 2.0])
def test_beta_spread_has_the_moments_of_its_beta(concentration):
    """Mean omega of a fresh request: closed form, through the quadrature of survivals (end points cost digits)."""
    spread, tolerance = BetaSpread(concentration=concentration), 2e-6
    nodes, weights = quantile_nodes()
    alphas = Iid(rate=0.7, request_spread=spread).request_rates(nodes, 1)[:, 0]
    fresh = weights @ theory.expected_tokens(alphas, 5)
    closed = theory.beta_expected_tokens(0.7 * spread.concentration, 0.3 * spread.concentration, 5)
    assert fresh == pytest.approx(closed, abs=tolerance)
    assert weights @ alphas == pytest.approx(0.7, abs=tolerance)


@pytest.mark.parametrize("sd", [0.1, 1.0, 4.0])
def test_logit_normal_spread_keeps_the_mean_over_requests(sd):
    uniforms = (np.arange(20_000) + 0.5) / 20_000
    rates = LogitNormalSpread(sd=sd).rates(uniforms, np.array([0.0, 0.3, 0.7, 1.0]))
    assert rates.mean(axis=0) == pytest.approx([0.0, 0.3, 0.7, 1.0], abs=1e-4)


def test_requests_that_differ_pool_to_the_harmonic_mean():
    """Two kinds of requests in equal shares, alpha 0.5 and 0.9 at K=5: 2.7726 tokens per step (not 3.3272)."""
    survival = np.array([0.5, 0.9])[:, None] ** np.arange(1, 6)
    assert 1 + pooled_survival(survival, np.array([0.5, 0.5])).sum() == pytest.approx(2.7726, abs=5e-5)


@pytest.mark.parametrize("spread", [BetaSpread(concentration=6.0), LogitNormalSpread(sd=0.8)])
def test_pooled_tokens_per_step_with_request_spread(spread):
    model, k, requests = Iid(rate=0.7, request_spread=spread), 5, table(6000, 600)
    found = walk(model.tape(requests, k, Streams(31)), requests, k)
    emitted = 1 + found.survival.sum()
    assert abs(emitted - 1 - model.survival(k).sum()) < 3 * found.tokens_per_step_error + 2e-3
    assert emitted < theory.expected_tokens(0.7, k) + 0.3
