"""The fitter finds what made the data, respects its box, and shrugs off outliers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares

from sim.calibration.fit import error_stats, fit
from sim.errors import CalibrationError

M = np.array([2.0**i for i in range(14)] * 3)
WEIGHTS = np.repeat([1.0, 4.0, 9.0], 14)
BOUNDS = [(0.1, 2.0), (0.1, 2.0), (1.0, 8.0), (0.0, 50.0)]


def roofline(p: np.ndarray) -> np.ndarray:
    memory, compute = 20.0 * WEIGHTS / p[0], 0.2 * M * WEIGHTS / p[1]
    return (memory ** p[2] + compute ** p[2]) ** (1 / p[2]) + p[3]


@given(st.floats(0.5, 1.1), st.floats(0.3, 1.0), st.floats(1.2, 5.0), st.floats(1.0, 20.0))
def test_recovers_the_parameters_of_clean_data(memory, compute, smoothness, launch):
    truth = (memory, compute, smoothness, launch)
    found = fit(roofline, roofline(np.array(truth)), (1.0, 1.0, 2.0, 5.0), BOUNDS)
    assert found.parameters == pytest.approx(truth, rel=0.02)
    assert found.mape < 0.05
    assert not any(found.at_bound)


def test_outliers_move_the_fit_little():
    truth = np.array([0.8, 0.6, 2.0, 5.0])
    target = roofline(truth)
    target[::9] *= 3.0
    found = fit(roofline, target, (1.0, 1.0, 2.0, 1.0), BOUNDS)
    assert found.parameters[:2] == pytest.approx(truth[:2], rel=0.12)


def test_not_worse_than_scipy_on_noisy_data():
    rng = np.random.default_rng(5)
    target = roofline(np.array([0.8, 0.6, 2.0, 5.0])) * np.exp(rng.normal(0, 0.1, M.size))
    ours = fit(roofline, target, (1.0, 1.0, 2.0, 1.0), BOUNDS)
    low, high = zip(*BOUNDS, strict=True)
    theirs = least_squares(
        lambda p: np.log(roofline(p)) - np.log(target), (1.0, 1.0, 2.0, 1.0),
        bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale=[1, 1, 1, 10],
    )  # fmt: skip
    assert ours.loss <= theirs.cost * 2 / 0.1**2 / M.size * 1.001
    assert ours.points == M.size


def test_a_parameter_at_the_end_of_its_box_is_reported():
    target = roofline(np.array([0.8, 0.6, 2.0, 5.0]))
    found = fit(roofline, target, (1.0, 1.0, 2.0, 1.0), [(0.1, 2.0), (0.7, 2.0), (1.0, 8.0), (0.0, 50.0)])
    assert found.at_bound == (False, True, False, False)
    assert found.parameters[1] == pytest.approx(0.7, rel=1e-3)


def test_equal_bounds_hold_a_parameter_fixed():
    target = roofline(np.array([0.8, 0.6, 2.0, 5.0]))
    found = fit(roofline, target, (0.8, 0.6, 3.0, 1.0), [*BOUNDS[:2], (3.0, 3.0), BOUNDS[3]])
    assert found.parameters[2] == 3.0
    assert found.mape < 5


def test_weights_choose_which_points_count():
    target = np.concatenate([np.full(10, 2.0), np.full(10, 3.0)])
    weights = np.repeat([1.0, 0.0], 10)
    found = fit(lambda p: np.full(20, p[0]), target, (1.0,), [(0.1, 10.0)], weights)
    assert found.parameters[0] == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("bad", [np.array([1.0, np.nan, 2.0]), np.array([1.0, -2.0, 3.0]), np.array([])])
def test_impossible_times_are_refused(bad):
    with pytest.raises(CalibrationError):
        fit(lambda p: np.full(bad.size, p[0]), bad, (1.0,), [(0.1, 10.0)])


def test_too_few_points_are_refused():
    with pytest.raises(CalibrationError, match="2 points cannot fix 3 parameters"):
        fit(lambda p: p[:2], np.ones(2), (1.0, 1.0, 1.0), [(0.1, 10.0)] * 3)


def test_error_stats_by_hand():
    stats = error_stats(np.array([1.1, 0.8, 1.0]), np.ones(3))
    assert stats[0] == pytest.approx(10.0)
    assert stats.worst == pytest.approx(20.0)
    assert stats.bias == pytest.approx(-100 / 30)
