"""Do 95 % intervals cover the truth in 95 % of the experiments? On cases whose truth is known.

Tolerances are three standard errors of a binomial share: 3 sqrt(0.05 * 0.95 / n), 2.7 points at 600 experiments.
"""

import math

import numpy as np
import pytest

from sim.experiment.curve import Curve, judge
from sim.metrics.statistics import mean_interval, paired_ratio, welch_interval
from sim.metrics.window import Loop, measurement_window

EXPERIMENTS = 600
TOLERANCE = 3 * math.sqrt(0.05 * 0.95 / EXPERIMENTS)


def covered(intervals, truth):
    return float(np.mean([found.low <= truth <= found.high for found in intervals]))


def md1_mean_waits(rho, measured, runs, seed=1):
    """(mean over all, mean over the measured requests) of the waits in independent M/D/1 queues that start empty.

    Lindley's recursion, all runs at once; service takes 1.
    """
    rng = np.random.default_rng(seed)
    total, chosen, wait = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    for is_measured in measured:
        total += wait
        chosen += wait * is_measured
        wait = np.maximum(0.0, wait + 1.0 - rng.exponential(1 / rho, runs))
    return total / len(measured), chosen / measured.sum()


def measured_rows(job, two_times, num_requests):
    """The requests that the production rule measures in such a queue: one server, steps of constant time."""
    queue = job(num_requests=num_requests, prompt=8, output=1, alpha=0.0, k=0, cost=two_times(0.01, 0.01))
    return measurement_window(queue.run(queue.poisson(50.0)), Loop(None)).measured


@pytest.mark.parametrize("replicates", [5, 10])
def test_t_intervals_cover_the_mean_wait_of_an_m_d_1_queue(replicates):
    """rho = 0.5, 2,000 requests: means of replicates are nearly normal. Heavier loads: background/statistics.md."""
    measured = (np.arange(2000) >= 200) & (np.arange(2000) < 1900)  # the rule's, see the next test
    _, means = md1_mean_waits(0.5, measured, EXPERIMENTS * replicates)
    found = [mean_interval(row, 0.95) for row in means.reshape(EXPERIMENTS, replicates).tolist()]
    assert abs(covered(found, 0.5) - 0.95) <= TOLERANCE


def test_warm_up_deletion_leaves_less_bias_than_the_interval_is_wide(job, two_times):
    """An M/D/1 queue at rho = 0.8 that starts empty waits too little at first; in the long run it waits 2 services.

    20,000 runs of 1,000 requests: the mean over all requests is low by 1.4 %. Over the measured ones it cannot be told
    from the truth (a standard error is 0.18 %), and what bias there may be is small beside the interval of five runs.
    """
    measured = measured_rows(job, two_times, 1000)
    assert (int(np.argmax(measured)), int(measured.sum())) == (100, 850)
    everything, chosen = (means / 2.0 - 1.0 for means in md1_mean_waits(0.8, measured, 20_000))
    error = float(chosen.std(ddof=1)) / math.sqrt(len(chosen))
    assert error < 0.0025
    assert everything.mean() < -3 * error
    assert abs(chosen.mean()) < 3 * error
    intervals = [mean_interval(row, 0.95) for row in chosen[:1000].reshape(200, 5).tolist()]
    half_width = float(np.mean([found.high - found.low for found in intervals])) / 2
    assert abs(chosen.mean()) + 3 * error < 0.1 * half_width


@pytest.mark.parametrize("replicates", [5, 10])
def test_paired_ratios_cover_the_true_speedup(replicates):
    """Replicates differ by 20 %, pairs by 2 %: only the latter matters."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(EXPERIMENTS):
        level = rng.lognormal(3, 0.2, replicates)
        found.append(paired_ratio(level * 1.3 * rng.lognormal(0, 0.02, replicates), level, 0.95))
    assert abs(covered(found, 1.3) - 0.95) <= TOLERANCE


def test_welch_intervals_cover_differences_of_unequal_spread():
    rng = np.random.default_rng(3)
    found = [welch_interval(rng.normal(12, 3, 5), rng.normal(10, 1, 8), 0.95) for _ in range(EXPERIMENTS)]
    assert abs(covered(found, 2.0) - 0.95) <= TOLERANCE


def crossings_of(replicates, spread, shared, seeds):
    """Intervals of a crossing at 4 sqrt(2) on made-up curves; `shared` is the noise that all loads of a run have."""
    x = np.array([1.0, 2, 4, 8, 16, 32])
    truth = np.log2(4 * math.sqrt(2) / x) * 0.24
    for seed in seeds:
        rng = np.random.default_rng([9, seed])
        noise = rng.normal(0, shared, (replicates, 1)) + rng.normal(0, spread, (replicates, len(x)))
        yield from judge(Curve(x, truth + noise), 0.95).crossings


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "shared"), [(0.02, 0.0), (0.05, 0.0), (0.02, 0.05)])
@pytest.mark.parametrize("replicates", [5, 10])
def test_break_even_intervals_cover_the_true_crossing(replicates, spread, shared):
    found = list(crossings_of(replicates, spread, shared, range(EXPERIMENTS)))
    assert len(found) >= 0.99 * EXPERIMENTS
    truth = 4 * math.sqrt(2)
    share = np.mean([each.ci_low <= truth <= each.ci_high for each in found])
    assert abs(share - 0.95) <= TOLERANCE
