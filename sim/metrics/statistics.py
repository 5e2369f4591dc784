"""Intervals: Student's t without scipy, paired ratios, bootstrap. Used by `experiment` and `report`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: Below this many requests a 99th percentile rests on fewer than ten of them.
MIN_REQUESTS_FOR_P99 = 1000


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b) for a, b > 0 and 0 <= x <= 1.

    Source: continued fraction of Numerical Recipes (3rd ed., 6.4), evaluated by Lentz's method.
    """
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), good to 1e-15 within 300 terms for the a, b of t distributions."""
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for term in (even, odd):
            d, c = 1.0 / (1.0 + term * d), 1.0 + term / c
            value *= c * d
        if abs(value - before) <= 1e-15 * abs(value):
            break
    return value


def t_cdf(t: float, degrees: float) -> float:
    """Distribution function of Student's t with `degrees` > 0 degrees of freedom."""
    tail = 0.5 * incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: float) -> float:
    """The t with P(T <= t) = probability, by bisection to full double precision.

    Args:
        probability: strictly between 0 and 1.
        degrees: degrees of freedom, >= 1; whole but for Welch's.

    Raises:
        ValueError: an argument is outside its range.
    """
    if not 0.0 < probability < 1.0 or degrees < 1:
        raise ValueError(f"t_quantile needs 0 < probability < 1 and degrees >= 1, got {probability}, {degrees}")
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    high = 1.0
    while t_cdf(high, degrees) < probability:
        high *= 2.0
    low = 0.0
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return 0.5 * (low + high)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval; `low` and `high` are None when one value alone allows no interval."""

    estimate: float
    low: float | None
    high: float | None
    num: int


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Mean of independent values with its t-interval.

    Raises:
        ValueError: no values.
    """
    if not len(values):
        raise ValueError("mean_interval needs at least one value")
    sample = np.asarray(values, np.float64)
    mean, n = float(sample.mean()), len(sample)
    if n == 1:
        return Interval(mean, None, None, 1)
    half = t_quantile(0.5 + confidence / 2.0, n - 1) * float(sample.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def welch_interval(values: Sequence[float], base: Sequence[float], confidence: float) -> Interval:
    """Difference of two means of independent values, `values` less `base`, of variances that may differ.

    Source: B. L. Welch, "The generalization of Student's problem", Biometrika 34 (1947), with Satterthwaite's degrees
    of freedom.

    Raises:
        ValueError: one of them is empty.
    """
    if not len(values) or not len(base):
        raise ValueError("welch_interval needs at least one value on either side")
    ours, theirs = np.asarray(values, np.float64), np.asarray(base, np.float64)
    difference, n = float(ours.mean() - theirs.mean()), min(len(ours), len(theirs))
    if n == 1:
        return Interval(difference, None, None, 1)
    a, b = (float(side.var(ddof=1)) / len(side) for side in (ours, theirs))
    if a + b == 0.0:
        return Interval(difference, difference, difference, n)
    degrees = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = t_quantile(0.5 + confidence / 2.0, degrees) * math.sqrt(a + b)
    return Interval(difference, difference - half, difference + half, n)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float], confidence: float) -> Interval:
    """Geometric mean of the ratios of pairs, with a t-interval on their logarithms.

    Raises:
        ValueError: no pairs, unequal lengths, or a value that is not positive and finite.
    """
    top, bottom = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    if top.shape != bottom.shape or not top.size:
        raise ValueError("paired_ratio needs equally many numerators and denominators, at least one")
    if not (np.isfinite(top) & np.isfinite(bottom) & (top > 0) & (bottom > 0)).all():
        raise ValueError("paired_ratio needs positive finite values")
    logs = mean_interval(np.log(top / bottom).tolist(), confidence)
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Interval(math.exp(logs.estimate), low, high, logs.num)


def bootstrap_means(samples: Floats, confidence: float, uniforms: Floats) -> Floats:
    """Resampled means over the first axis, widened so that few replicates give honest t-like intervals.

    A plain bootstrap of n values is too narrow by about sqrt((n-1)/n) z/t; deviations from the mean are stretched by
    the inverse (Hesterberg, "What teachers should know about the bootstrap", 2015, section 3.2).

    Args:
        samples: (n, ...) one row per replicate, n >= 2.
        confidence: the level whose t quantile sets the stretch.
        uniforms: (D, n) uniforms in [0, 1): one row per resample.

    Returns:
        (D, ...) resampled means.
    """
    n = len(samples)
    picks = (uniforms * n).astype(np.intp)
    tail = 0.5 + confidence / 2.0
    stretch = math.sqrt(n / (n - 1)) * t_quantile(tail, n - 1) / NormalDist().inv_cdf(tail)
    mean = samples.mean(axis=0)
    widened: Floats = mean + stretch * (samples[picks].mean(axis=1) - mean)
    return widened


def percentile_interval(
    statistic: Callable[[Floats], float], resampled: Floats, confidence: float
) -> tuple[float, float]:
    """Percentile interval of `statistic` over resampled curves; NaN results (no value) are left out.

    Returns:
        (low, high), both NaN when no resample has a value.
    """
    found = np.array([statistic(row) for row in resampled])
    found = found[np.isfinite(found)]
    if not found.size:
        return math.nan, math.nan
    low, high = np.quantile(found, [0.5 - confidence / 2.0, 0.5 + confidence / 2.0])
    return float(low), float(high)
