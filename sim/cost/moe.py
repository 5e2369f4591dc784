"""Routed experts: the traffic is that of the *distinct* experts a batch touches.

Equation: docs/background/cost-model.md, "Mixture of experts".
"""

import math
from dataclasses import dataclass

from sim.cost.formats import Format
from sim.cost.smooth import Terms, smooth_max
from sim.hardware.profile import MoeFit
from sim.models.model import ExpertShape
from sim.theory.tokens import distinct_experts


@dataclass(frozen=True, slots=True)
class Experts:
    """The fused expert block of all layers on one GPU."""

    shape: ExpertShape
    fmt: Format
    fit: MoeFit
    memory_bandwidth: float

    def terms(self, tokens: int) -> Terms:
        """Time of all layers for `tokens` rows; 0 for a dense model."""
        shape, fit = self.shape, self.fit
        if not shape.layers or not tokens:
            return Terms(0.0, 0.0, 0.0)
        memory = self._bytes(tokens) / (self.memory_bandwidth * fit.memory_efficiency)
        compute = self._flops(tokens) / (self.fmt.peak_flops * fit.compute_efficiency)
        routing = tokens * shape.top_k * 4.0 * (shape.hidden + shape.width) / self.memory_bandwidth
        one = smooth_max(memory, compute, fit.smoothness) + fit.launch_us * 1e-6 + fit.routing_passes * routing
        return Terms(shape.layers * one, shape.layers * memory, shape.layers * compute)

    def _bytes(self, tokens: int) -> float:
        shape = self.shape
        distinct = distinct_experts(tokens, shape.experts, shape.top_k)
        return shape.parameters_per_expert * self.fmt.weight_bytes * distinct + 4.0 * tokens * shape.hidden

    def _flops(self, tokens: int) -> float:
        """Each distinct expert multiplies whole tiles of rows."""
        shape, tile = self.shape, self.fit.tile_rows
        distinct = distinct_experts(tokens, shape.experts, shape.top_k)
        rows_per_expert = tokens * shape.top_k / distinct
        tiles = math.ceil(rows_per_expert / tile - 1e-9) if tile > 1 else rows_per_expert
        return 2.0 * shape.parameters_per_expert * distinct * tile * tiles
