import math

import numpy as np
import pytest

from sim.experiment.curve import Curve, judge, shifted_crossing

X = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def curve(means: list[float], spread: float = 0.0, replicates: int = 5, seed: int = 0) -> Curve:
    noise = np.random.default_rng(seed).normal(0, spread, (replicates, len(means))) if spread else 0.0
    return Curve(X[: len(means)], np.array([means] * replicates) + noise)


def test_a_straight_line_crosses_where_it_does() -> None:
    verdict = judge(curve([0.5, 0.3, 0.1, -0.1, -0.3, -0.5]), 0.95)
    (found,) = verdict.crossings
    assert verdict.status == "crosses"
    assert found.value == pytest.approx(4 * math.sqrt(2), rel=1e-12)
    assert (found.direction, found.bracket, found.num_pairs) == ("gain_to_loss", (4.0, 8.0), 5)
    assert found.ci_low == pytest.approx(found.value)  # no noise, no width


def test_every_crossing_is_reported_with_its_direction() -> None:
    verdict = judge(curve([-0.2, 0.2, 0.2, -0.2, -0.2, 0.2]), 0.95)
    assert [c.direction for c in verdict.crossings] == ["loss_to_gain", "gain_to_loss", "loss_to_gain"]
    assert [c.bracket for c in verdict.crossings] == [(1, 2), (4, 8), (16, 32)]


@pytest.mark.parametrize(("sign", "status"), [(1, "always"), (-1, "never")])
def test_one_sign_throughout(sign: int, status: str) -> None:
    verdict = judge(curve([sign * 0.2] * 6, 0.02), 0.95)
    assert (verdict.status, verdict.crossings) == (status, ())


def test_an_end_that_noise_hides_is_not_called_always() -> None:
    verdict = judge(curve([0.4, 0.3, 0.2, 0.1, 0.05, 0.0], 0.02), 0.95)
    assert verdict.status == "indeterminate"
    assert 32.0 in verdict.unresolved


def test_nothing_but_noise_is_indeterminate() -> None:
    assert judge(curve([0.0] * 6, 0.05, seed=3), 0.95).status == "indeterminate"


def test_the_bracket_spans_unresolved_points() -> None:
    (found,) = judge(curve([0.5, 0.3, 0.002, -0.002, -0.3, -0.5], 0.02), 0.95).crossings
    assert found.bracket == (2.0, 16.0)
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert 2.0 <= found.ci_low < found.value < found.ci_high <= 16.0


def test_one_replicate_resolves_nothing() -> None:
    verdict = judge(curve([0.5, 0.3, 0.1, -0.1, -0.3, -0.5], replicates=1), 0.95)
    assert (verdict.status, verdict.crossings, len(verdict.unresolved)) == ("indeterminate", (), 6)


def test_bootstrap_interval_covers_the_true_crossing() -> None:
    """200 experiments of 5 replicates; 3 standard errors of a 95 % binomial are 4.6 points, and 5 values are few."""
    truth, hits, trials = 4 * math.sqrt(2), 0, 0
    for seed in range(200):
        verdict = judge(curve([0.6, 0.36, 0.12, -0.12, -0.36, -0.6], 0.05, seed=seed), 0.95)
        for found in verdict.crossings:
            assert found.ci_low is not None
            assert found.ci_high is not None
            trials += 1
            hits += found.ci_low <= truth <= found.ci_high
    assert trials >= 195
    assert abs(hits / trials - 0.95) < 0.06


def test_the_model_band_moves_the_crossing_the_right_way_or_out_of_range() -> None:
    straight = curve([0.5, 0.3, 0.1, -0.1, -0.3, -0.5])
    (found,) = judge(straight, 0.95).crossings
    slower = shifted_crossing(straight, np.full(6, math.log(1 / 1.08)), found)
    faster = shifted_crossing(straight, np.full(6, math.log(1 / 0.92)), found)
    assert slower is not None
    assert faster is not None
    assert slower < found.value < faster
    assert shifted_crossing(straight, np.full(6, 1.0), found) is None
