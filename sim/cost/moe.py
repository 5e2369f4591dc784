"""Routed experts: the traffic is that of the *distinct* experts a batch touches, on the busiest GPU.

Equation: docs/background/cost-model.md, "Mixture of experts".
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from sim.cost.formats import Format
from sim.cost.smooth import Terms, larger, round_up, smooth_max
from sim.hardware.profile import MoeFit
from sim.models.shapes import ExpertShape
from sim.theory.balance import busiest_hits, busiest_total
from sim.theory.tokens import distinct_experts


class Busiest(NamedTuple):
    """What the busiest of several GPUs has to do in a layer, in expectation.

    Attributes:
        distinct: of its experts, those that some token chose.
        choices: choices of a token for one of its experts.
    """

    distinct: float
    choices: float


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
        return _distinct(self, experts, top_k, tokens)

    def busiest(self, experts: int, top_k: int, tokens: int, num_gpus: int) -> Busiest:
        """The busiest of `num_gpus` GPUs that hold whole experts, placed without regard to their popularity.

        Distinct experts and choices each have their own busiest GPU; taking both overestimates by less than either
        margin, and one of the two decides the time.
        """
        return _busiest(self, experts, top_k, tokens, num_gpus)

    def chosen(self, experts: int, top_k: int) -> np.ndarray:
        """Probability that one token chooses each expert, the most popular first."""
        if not self.popularity_skew:
            return np.full(experts, top_k / experts)
        return _popularity(experts, top_k, self.popularity_skew)


UNIFORM = Routing()


@lru_cache(maxsize=8192)
def _distinct(routing: Routing, experts: int, top_k: int, tokens: int) -> float:
    if not routing.popularity_skew:
        return distinct_experts(tokens, experts, top_k, routing.adjacent_correlation)
    independent = 1.0 + (tokens - 1.0) * (1.0 - routing.adjacent_correlation)
    return float(np.sum(1.0 - (1.0 - routing.chosen(experts, top_k)) ** independent))


@lru_cache(maxsize=8192)
def _busiest(routing: Routing, experts: int, top_k: int, tokens: int, num_gpus: int) -> Busiest:
    held = -(-experts // num_gpus)
    independent = 1.0 + (tokens - 1.0) * (1.0 - routing.adjacent_correlation)
    chosen = routing.chosen(experts, top_k)
    hit = 1.0 - (1.0 - chosen) ** independent
    distinct = busiest_hits(num_gpus, held, float(hit.mean()))
    # `independent` tokens choose, and tokens / independent ones follow each of them
    load, follow = tokens * chosen, tokens / independent
    spread, skew = load * follow * (1.0 - chosen), load * follow**2 * (1.0 - chosen) * (1.0 - 2.0 * chosen)
    mean = float(load.mean())
    off = load - mean
    # a token's choices sum to top_k, which makes those for two experts fall against each other
    variance = float(spread.sum() + (off**2).sum()) / max(experts - 1, 1)
    third = float((skew + 3.0 * spread * off + off**3).mean())
    choices = busiest_total(num_gpus, held, mean, variance, third)
    hottest = float(load[0]) + (held - 1) * float(load[1:].mean()) if experts > 1 else mean
    most = float(tokens * min(top_k, held))
    return Busiest(max(distinct, min(held, -(-top_k // num_gpus))), min(max(choices, hottest), most))


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
    """The fused expert block of all layers on one GPU; whole experts spread over `num_gpus` if more than one."""

    shape: ExpertShape
    fmt: Format
    fit: MoeFit
    memory_bandwidth: float
    routing: Routing = UNIFORM
    num_gpus: int = 1

    @property
    def triton_layers(self) -> int:
        """Layers whose experts are Triton kernels, which Python launches one by one."""
        return self.shape.layers if "triton" in (self.fit.kernel or "") else 0

    def terms(self, tokens: int) -> Terms:
        """Time of all layers for `tokens` rows, on the slowest GPU; 0 for a dense model."""
        shape = self.shape
        if not shape.layers or not tokens:
            return Terms(0.0, 0.0, 0.0)
        if self.num_gpus == 1:
            return self.reading(tokens, self.routing.distinct(shape.experts, shape.top_k, tokens))
        return self.reading(tokens, *self.routing.busiest(shape.experts, shape.top_k, tokens, self.num_gpus))

    def reading(self, tokens: int, distinct: float, choices: float | None = None) -> Terms:
        """Time of all layers when the rows touch `distinct` experts of this GPU in `choices` (default: all) choices."""
        shape, fit = self.shape, self.fit
        everywhere = tokens * shape.top_k
        here = everywhere if choices is None else choices
        traffic = shape.parameters_per_expert * self.fmt.weight_bytes * distinct + 4.0 * tokens * shape.hidden
        memory = traffic / (self.memory_bandwidth * fit.memory_efficiency)
        compute = self._flops(here, distinct) / (self.fmt.peak_flops * fit.compute_efficiency)
        routed = everywhere if fit.routes_all_tokens else here
        routing = routed * 4.0 * (shape.hidden + shape.width) / self.memory_bandwidth
        one = smooth_max(memory, compute, fit.smoothness) + fit.launch_us * 1e-6 + fit.routing_passes * routing
        return Terms(shape.layers * one, shape.layers * memory, shape.layers * compute)

    def _flops(self, choices: float, distinct: float) -> float:
        """Each distinct expert multiplies whole tiles of rows."""
        shape, tile = self.shape, self.fit.tile_rows
        rows_per_expert = larger(choices / distinct, 1.0)
        tiles = round_up(rows_per_expert / tile) if tile > 1 else rows_per_expert
        return 2.0 * shape.parameters_per_expert * distinct * tile * tiles
