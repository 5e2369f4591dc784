"""Inverse CDFs against SciPy's, and against the moments they promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from sim import distributions
from sim.rng import Streams

ENDS = [0.0, 2.0**-53, 1e-15, 1e-9, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-9, 1 - 1e-15, 1 - 2.0**-53]
UNIFORMS = np.concatenate((ENDS, Streams(7).per_row("test", 20_000)))
READ_AS = np.maximum(UNIFORMS, 2.0**-54)
SHAPES = [0.01, 0.1, 0.25, 0.5, 0.99, 1.0, 1.01, 2.0, 5.0, 37.5, 1000.0, 10_000.0]


def test_normal_is_the_inverse_normal_to_rounding() -> None:
    np.testing.assert_allclose(distributions.normal_quantile(UNIFORMS), special.ndtri(READ_AS), rtol=1e-14, atol=1e-16)


def test_normal_keeps_the_shape_of_its_argument() -> None:
    assert distributions.normal_quantile(UNIFORMS[:12].reshape(3, 4)).shape == (3, 4)


@pytest.mark.parametrize("shape", SHAPES)
def test_gamma_matches_scipy(shape: float) -> None:
    expected = special.gammaincinv(shape, READ_AS)
    normal_range = expected > 1e-300
    found = distributions.gamma_quantile(UNIFORMS, shape, 3.0) / 3.0
    np.testing.assert_allclose(found[normal_range], expected[normal_range], rtol=1e-7)
    assert np.isfinite(found).all()
    assert (found[~normal_range] <= 1e-299).all()


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.01, 0.01), (0.01, 5), (0.1, 0.3), (0.5, 0.5), (1, 1), (2, 5), (12, 3), (300, 100), (1e4, 1e4), (1e4, 0.01)],
)
def test_beta_matches_scipy(a: float, b: float) -> None:
    expected = special.betaincinv(a, b, READ_AS)
    normal_range = expected > 1e-290
    found = distributions.beta_quantile(UNIFORMS, a, b)
    np.testing.assert_allclose(found[normal_range], expected[normal_range], rtol=1e-7)
    assert ((found >= 0) & (found <= 1)).all()


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-2, 1e4), st.floats(1e-2, 1e4))
def test_quantiles_never_decrease(a: float, b: float) -> None:
    uniforms = np.sort(UNIFORMS[:2000])
    for draws in (distributions.gamma_quantile(uniforms, a), distributions.beta_quantile(uniforms, a, b)):
        assert (np.diff(draws) >= 0).all()
        assert np.isfinite(draws).all()


@given(st.floats(1.0, 1e5), st.floats(0.01, 5.0))
def test_lognormal_parameters_give_the_mean_and_cv(mean: float, cv: float) -> None:
    mu, sigma = distributions.lognormal_parameters(mean, cv)
    assert np.exp(mu + sigma**2 / 2) == pytest.approx(mean, rel=1e-12)
    assert np.sqrt(np.expm1(sigma**2)) == pytest.approx(cv, rel=1e-9)


def test_draws_follow_their_law() -> None:
    uniforms = Streams(3).per_row("law", 20_000)
    for draws, law in [
        (distributions.lognormal_quantile(uniforms, 1.0, 0.5), stats.lognorm(0.5, scale=np.e)),
        (distributions.exponential_quantile(uniforms, 4.0), stats.expon(scale=4.0)),
        (distributions.gamma_quantile(uniforms, 0.25, 2.0), stats.gamma(0.25, scale=2.0)),
        (distributions.beta_quantile(uniforms, 2.0, 3.0), stats.beta(2.0, 3.0)),
    ]:
        assert stats.kstest(draws, law.cdf).pvalue > 0.001
