"""The busiest of several equal groups: expected maximum of sums of independent draws.

Experts are placed on GPUs without regard to their popularity, so every slot of a GPU is a draw from the pool of all
experts, and the slowest GPU holds the luckless hand. Used by the cost of expert parallelism.
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_GRID = 2001  # points of the integral over the normal density, within 9 standard deviations


def busiest_total(num_groups: int, size: int, mean: float, variance: float, third: float) -> float:
    """Expected largest of `num_groups` sums of `size` draws each.

    Cornish-Fisher to the first order in the skewness g: mean + s (E[z] + g (E[z^2] - 1) / 6), z the largest of
    `num_groups` standard normals. `variance` counts what tells groups apart: where all groups share a fixed total
    (the top-k choices of a token), the variance of a draw less the covariance of two.

    Args:
        num_groups: groups; one group has the mean.
        size: draws per group.
        mean: of a draw.
        variance: of a draw, less the covariance of two draws.
        third: third central moment of a draw.
    """
    deviation = math.sqrt(size * variance)
    if num_groups == 1 or not deviation:
        return size * mean
    first, second = largest_normal(num_groups)
    return size * mean + deviation * (first + size * third / deviation**3 * (second - 1.0) / 6.0)


def busiest_hits(num_groups: int, size: int, probability: float) -> float:
    """Expected largest of `num_groups` binomial(`size`, `probability`) counts: sum over j < size of 1 - F(j)^groups.

    Rises with `probability` and never exceeds `size`; one group has the mean.
    """
    if not 0.0 < probability < 1.0:
        return size * min(max(probability, 0.0), 1.0)
    below = np.minimum(np.cumsum(np.exp(_log_choose(size) + _log_weights(size, probability))), 1.0)
    return float(np.sum(1.0 - below[:-1] ** num_groups))


def _log_weights(size: int, probability: float) -> NDArray[np.float64]:
    counts = np.arange(size + 1.0)
    weights: NDArray[np.float64] = counts * math.log(probability) + (size - counts) * math.log1p(-probability)
    return weights


@cache
def _log_choose(size: int) -> NDArray[np.float64]:
    whole = math.lgamma(size + 1.0)
    return np.array([whole - math.lgamma(j + 1.0) - math.lgamma(size - j + 1.0) for j in range(size + 1)])


@cache
def largest_normal(count: int) -> tuple[float, float]:
    """First and second moment of the largest of `count` independent standard normals, by the trapezoidal rule."""
    grid = np.linspace(-9.0, 9.0, _GRID)
    normal = NormalDist()
    below = np.array([normal.cdf(z) for z in grid])
    density = count * np.exp(-0.5 * grid**2) / math.sqrt(2.0 * math.pi) * below ** (count - 1)
    step = float(grid[1] - grid[0])
    return float(np.sum(grid * density) * step), float(np.sum(grid**2 * density) * step)
