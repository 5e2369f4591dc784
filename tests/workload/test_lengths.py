"""Length distributions: moments, limits and laws."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from sim.rng import Streams
from sim.workload.lengths.fixed import Fixed
from sim.workload.lengths.lognormal import Lognormal
from sim.workload.lengths.quantiles import Quantiles
from sim.workload.lengths.trace import FromTrace
from sim.workload.lengths.uniform import Uniform

N = 20_000
UNIFORMS = Streams(5).per_row("lengths/test", N)


def test_fixed() -> None:
    assert (Fixed(value=37).draw(UNIFORMS[:9]) == 37).all()
    assert Fixed(value=37).mean_tokens() == Fixed(value=37).max_tokens() == 37


def test_lognormal_has_its_mean_and_cv_where_no_limit_bites() -> None:
    lengths = Lognormal(mean=1000, cv=0.8).draw(UNIFORMS)
    # standard error of the mean: 0.8 / sqrt(20,000) = 0.57 %; of this CV, with its heavy tail, about 1.5 %
    assert lengths.mean() == pytest.approx(1000, rel=4 * 0.0057)
    assert lengths.std() / lengths.mean() == pytest.approx(0.8, rel=4 * 0.015)
    sigma = np.sqrt(np.log1p(0.64))
    law = stats.lognorm(sigma, scale=1000 / np.sqrt(1.64))
    assert stats.kstest(lengths + (UNIFORMS[::-1] - 0.5), law.cdf).pvalue > 0.001


def test_lognormal_is_clipped_not_redrawn() -> None:
    lengths = Lognormal(mean=1000, cv=1.0, min=400, max=900).draw(UNIFORMS)
    free = Lognormal(mean=1000, cv=1.0).draw(UNIFORMS)
    assert (lengths == np.clip(free, 400, 900)).all()
    assert Lognormal(mean=1000, cv=1.0, min=400, max=900).mean_tokens() == pytest.approx(lengths.mean(), rel=0.01)
    assert Lognormal(mean=1000, cv=1.0, min=400, max=900).max_tokens() == 900


def test_lognormal_without_spread_is_fixed() -> None:
    assert (Lognormal(mean=77, cv=0).draw(UNIFORMS[:50]) == 77).all()


def test_uniform_reaches_both_ends_equally_often() -> None:
    lengths = Uniform(min=3, max=7).draw(UNIFORMS)
    counts = np.bincount(lengths, minlength=8)[3:]
    assert counts.sum() == N
    assert stats.chisquare(counts).pvalue > 0.001
    assert Uniform(min=3, max=7).max_tokens() == 7
    assert Uniform(min=3, max=7).mean_tokens() == pytest.approx(5, abs=0.01)


QUANTILES = {"0.05": 41, "0.25": 85, "0.5": 129, "0.75": 395, "0.95": 451}


def test_quantiles_are_met() -> None:
    spec = Quantiles(q=QUANTILES, min=7, max=1000)
    lengths = spec.draw(UNIFORMS)
    for probability, tokens in QUANTILES.items():
        p = float(probability)
        share = (lengths <= tokens).mean()
        # binomial standard error, plus the share of lengths that round to the quantile itself
        assert abs(share - p) < 4 * (p * (1 - p) / N) ** 0.5 + (lengths == tokens).mean()
    assert lengths.min() >= 7
    assert spec.max_tokens() == 1000
    assert (np.diff(spec.draw(np.sort(UNIFORMS))) >= 0).all()


def test_quantiles_reproduce_a_measured_mean(shared_data: Path) -> None:
    trace = np.loadtxt(shared_data / "traces/azure2023_conv.csv", delimiter=",", skiprows=1)
    for column in (1, 2):
        levels = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
        q = {str(level): int(np.quantile(trace[:, column], level)) for level in levels}
        spec = Quantiles(q=q, min=int(trace[:, column].min()), max=int(trace[:, column].max()))
        assert spec.mean_tokens() == pytest.approx(trace[:, column].mean(), rel=0.04)


def test_quantiles_are_equal_however_they_are_written() -> None:
    one = Quantiles(q={"0.50": 100, "0.1": 10}, max=1000)
    other = Quantiles.model_validate({"kind": "quantiles", "q": {0.1: 10, 0.5: 100}, "max": "1k"})
    assert one == other
    assert Quantiles.model_validate_json(one.model_dump_json()) == one


def test_trace_lengths_are_the_observed_ones() -> None:
    observed = np.array([5, 9, 2])
    assert FromTrace().draw(UNIFORMS[:3], observed).tolist() == [5, 9, 2]
    assert FromTrace().max_tokens(observed) == 9
    assert FromTrace().mean_tokens(observed) == pytest.approx(16 / 3)


@given(st.floats(1, 1e6), st.floats(0, 10), st.integers(1, 1000), st.integers(0, 10_000))
def test_lognormal_lengths_are_within_limits(mean: float, cv: float, least: int, room: int) -> None:
    lengths = Lognormal(mean=mean, cv=cv, min=least, max=least + room).draw(UNIFORMS[:100])
    assert lengths.dtype == np.int64
    assert lengths.min() >= least
    assert lengths.max() <= least + room


@pytest.mark.parametrize(
    ("cls", "data", "message"),
    [
        (Fixed, {"value": 0}, "greater than 0"),
        (Fixed, {"value": 1.5}, "whole number"),
        (Fixed, {"value": 20_000_000}, "less than or equal"),
        (Lognormal, {"mean": -1, "cv": 1}, "greater than 0"),
        (Lognormal, {"mean": float("nan"), "cv": 1}, "finite"),
        (Lognormal, {"mean": 10, "cv": 1, "min": 9, "max": 8}, "min .9. is above max .8."),
        (Uniform, {"min": 9, "max": 8}, "is above max"),
        (Quantiles, {"q": {}, "max": 5}, "at least 1"),
        (Quantiles, {"q": {"0.5": 4, "0.50": 5}, "max": 5}, "given twice"),
        (Quantiles, {"q": {"1.5": 4}, "max": 5}, "0 < probability < 1"),
        (Quantiles, {"q": {"nan": 4}, "max": 5}, "0 < probability < 1"),
        (Quantiles, {"q": {"half": 4}, "max": 5}, "0 < probability < 1"),
        (Quantiles, {"q": {"0.5": 9, "0.7": 4}, "max": 9}, "must not fall"),
        (Quantiles, {"q": {"0.5": 9}, "max": 5}, "must not fall"),
        (Quantiles, {"q": [1, 2], "max": 5}, "dictionary"),
    ],
)
def test_impossible_lengths_are_refused(cls: type, data: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        cls.model_validate(data)
