"""Routed experts: the traffic is that of the *distinct* experts a batch touches.

Equation: docs/background/cost-model.md, "Mixture of experts".
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from sim.cost.formats import Format
from sim.cost.smooth import Terms, larger, round_up, smooth_max
from sim.hardware.profile import MoeFit
from sim.models.model import ExpertShape


class Routing(NamedTuple):
    """How tokens choose experts.

    Attributes:
        popularity_skew: exponent s of the popularity of the r-th expert, r^-s; 0 is uniform.
        adjacent_correlation: how much of a token's choice repeats that of the tokens before it: M tokens choose like
            1 + (M - 1)(1 - correlation) independent ones.
    """

    popularity_skew: float = 0.0
    adjacent_correlation: float = 0.0

    def distinct(self, experts: int, top_k: int, tokens: int) -> float:
        """Expected distinct experts of `tokens` tokens."""
        independent = 1.0 + (tokens - 1.0) * (1.0 - self.adjacent_correlation)
        if not self.popularity_skew:
            return distinct_experts(experts, top_k, independent)
        chosen = _popularity(experts, top_k, self.popularity_skew)
        return float(np.sum(1.0 - (1.0 - chosen) ** independent))


UNIFORM = Routing()


def distinct_experts(experts: int, top_k: int, tokens: float) -> float:
    """Expected distinct experts under uniform independent routing: E (1 - (1 - k/E)^M) (MoESD, arXiv 2505.19645)."""
    return experts * float(1.0 - (1.0 - top_k / experts) ** tokens)


@cache
def _popularity(experts: int, top_k: int, skew: float) -> np.ndarray:
    """Probability that one token uses each expert: 1 - (1 - p)^x for shares p ~ r^-skew, x such that they sum to k."""
    shares = np.arange(1.0, experts + 1.0) ** -skew
    shares /= shares.sum()
    low, high = 0.0, 64.0 * experts / float(shares[-1] * experts)
    for _ in range(200):
        middle = 0.5 * (low + high)
        short = float(np.sum(1.0 - (1.0 - shares) ** middle)) < top_k
        low, high = (middle, high) if short else (low, middle)
    chosen: np.ndarray = 1.0 - (1.0 - shares) ** high
    return chosen


@dataclass(frozen=True, slots=True)
class Experts:
    """The fused expert block of all layers on one GPU."""

    shape: ExpertShape
    fmt: Format
    fit: MoeFit
    memory_bandwidth: float
    routing: Routing = UNIFORM

    def terms(self, tokens: int) -> Terms:
        """Time of all layers for `tokens` rows; 0 for a dense model."""
        shape = self.shape
        if not shape.layers or not tokens:
            return Terms(0.0, 0.0, 0.0)
        return self.reading(tokens, self.routing.distinct(shape.experts, shape.top_k, tokens))

    def reading(self, tokens: int, distinct: float) -> Terms:
        """Time of all layers when the rows touch `distinct` experts."""
        shape, fit = self.shape, self.fit
        traffic = shape.parameters_per_expert * self.fmt.weight_bytes * distinct + 4.0 * tokens * shape.hidden
        memory = traffic / (self.memory_bandwidth * fit.memory_efficiency)
        compute = self._flops(tokens, distinct) / (self.fmt.peak_flops * fit.compute_efficiency)
        routing = tokens * shape.top_k * 4.0 * (shape.hidden + shape.width) / self.memory_bandwidth
        one = smooth_max(memory, compute, fit.smoothness) + fit.launch_us * 1e-6 + fit.routing_passes * routing
        return Terms(shape.layers * one, shape.layers * memory, shape.layers * compute)

    def _flops(self, tokens: int, distinct: float) -> float:
        """Each distinct expert multiplies whole tiles of rows."""
        shape, tile = self.shape, self.fit.tile_rows
        rows_per_expert = larger(tokens * shape.top_k / distinct, 1.0)
        tiles = round_up(rows_per_expert / tile) if tile > 1 else rows_per_expert
        return 2.0 * shape.parameters_per_expert * distinct * tile * tiles
