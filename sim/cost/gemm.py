"""Matrix products: projections and LM head. t = S_p(bytes/(BW e_m), 2M'N(K + fill)/(F e_c)) + launch.

Terms and fitted parameters: docs/background/cost-model.md, "Matrix products".
"""

from collections.abc import Iterable
from typing import NamedTuple

from sim.cost.formats import Format
from sim.cost.smooth import Terms, round_up, smaller, smooth_max
from sim.hardware.profile import GemmFit
from sim.models.shapes import LinearShape

#: Outputs that share one read of the inputs: the columns of a tile, in all kernels that were looked at.
TILE_OUTPUTS = 128
#: Price of a row in tiles of half as many rows, which the library takes where that leaves less of them empty. 1.09 and
#: 1.11 fit the two GPUs whose tables have every 16th number of rows.
HALF_TILE = 1.1


class GemmRate(NamedTuple):
    """One weight matrix bound to a GPU: everything in seconds; memory time is affine in the number of tokens M.

    Attributes:
        layers: how many such products a pass has.
        weights_s, per_token_s: memory time = weights_s + M per_token_s (activations read and written).
        flops_s: compute time per row of a tile.
        launch_s, quantise_s: fixed time per call, and time per token for quantising the activations.
        smoothness: p of the smooth maximum; None is a hard maximum.
        tile_rows: rows are computed in whole tiles of so many.
    """

    layers: int
    weights_s: float
    per_token_s: float
    flops_s: float
    launch_s: float
    quantise_s: float
    smoothness: float | None
    tile_rows: int = 1

    def terms(self, tokens: int) -> Terms:
        """Time of all layers for `tokens` rows."""
        rows = tokens if self.tile_rows == 1 else _computed_rows(tokens, self.tile_rows)
        memory, compute = self.weights_s + tokens * self.per_token_s, rows * self.flops_s
        one = smooth_max(memory, compute, self.smoothness) + self.launch_s + tokens * self.quantise_s
        return Terms(self.layers * one, self.layers * memory, self.layers * compute)


def _computed_rows(tokens: float, tile: int) -> float:
    half = tile // 2
    return smaller(tile * round_up(tokens / tile), HALF_TILE * half * round_up(tokens / half))


def bind_gemm(shape: LinearShape, fmt: Format, fit: GemmFit, memory_bandwidth: float) -> GemmRate:
    """Bind a matrix to a GPU: bytes = w N K + a M K (1 + rereads N/128) + 2 M N, FLOPs = 2 M' N (K + fill)."""
    bandwidth, outputs, inputs = memory_bandwidth * fit.memory_efficiency, shape.n_out, shape.k_in
    reads = 1.0 + fit.rereads * outputs / TILE_OUTPUTS
    return GemmRate(
        layers=shape.layers,
        weights_s=fmt.weight_bytes * outputs * inputs / bandwidth,
        per_token_s=(fmt.activation_bytes * inputs * reads + 2.0 * outputs) / bandwidth,
        flops_s=2.0 * outputs * (inputs + fit.fill_inputs) / (fmt.peak_flops * fit.compute_efficiency),
        launch_s=(fit.launch_us + fit.per_1000_inputs_us * inputs / 1000.0) * 1e-6,
        quantise_s=fit.quantise_passes * 3.0 * inputs / memory_bandwidth,
        smoothness=fit.smoothness,
        tile_rows=fit.tile_rows,
    )


def sum_terms(rates: Iterable[GemmRate], tokens: int) -> Terms:
    """Time of all products for `tokens` rows."""
    seconds = memory = compute = 0.0
    for rate in rates:
        one = rate.terms(tokens)
        seconds, memory, compute = seconds + one.seconds, memory + one.memory_s, compute + one.compute_s
    return Terms(seconds, memory, compute)
