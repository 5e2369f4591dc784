"""Matrix products: projections and LM head. t = S_p(bytes/(BW e_m), 2MN(K + fill)/(F e_c)) + launch.

Terms and fitted parameters: docs/background/cost-model.md, "Matrix products".
"""

from collections.abc import Iterable
from typing import NamedTuple

from sim.cost.formats import Format
from sim.cost.smooth import Terms, smooth_max
from sim.hardware.profile import GemmFit
from sim.models.shapes import LinearShape


class GemmRate(NamedTuple):
    """One weight matrix bound to a GPU: everything in seconds, affine in the number of tokens M.

    Attributes:
        layers: how many such products a pass has.
        weights_s, per_token_s: memory time = weights_s + M per_token_s (activations read and written).
        flops_s: compute time per token.
        launch_s, quantise_s: fixed time per call, and time per token for quantising the activations.
        smoothness: p of the smooth maximum; None is a hard maximum.
    """

    layers: int
    weights_s: float
    per_token_s: float
    flops_s: float
    launch_s: float
    quantise_s: float
    smoothness: float | None

    def terms(self, tokens: int) -> Terms:
        """Time of all layers for `tokens` rows."""
        memory, compute = self.weights_s + tokens * self.per_token_s, tokens * self.flops_s
        one = smooth_max(memory, compute, self.smoothness) + self.launch_s + tokens * self.quantise_s
        return Terms(self.layers * one, self.layers * memory, self.layers * compute)


def bind_gemm(shape: LinearShape, fmt: Format, fit: GemmFit, memory_bandwidth: float) -> GemmRate:
    """Bind a matrix to a GPU: bytes = w N K + a M K + 2 M N, FLOPs = 2 M N (K + fill)."""
    bandwidth, outputs, inputs = memory_bandwidth * fit.memory_efficiency, shape.n_out, shape.k_in
    return GemmRate(
        layers=shape.layers,
        weights_s=fmt.weight_bytes * outputs * inputs / bandwidth,
        per_token_s=(fmt.activation_bytes * inputs + 2.0 * outputs) / bandwidth,
        flops_s=2.0 * outputs * (inputs + fit.fill_inputs) / (fmt.peak_flops * fit.compute_efficiency),
        launch_s=(fit.launch_us + fit.per_1000_inputs_us * inputs / 1000.0) * 1e-6,
        quantise_s=fit.quantise_passes * 3.0 * inputs / memory_bandwidth,
        smoothness=fit.smoothness,
    )


def sum_terms(rates: Iterable[GemmRate], tokens: int) -> Terms:
    """Time of all products for `tokens` rows."""
    seconds = memory = compute = 0.0
    for rate in rates:
        one = rate.terms(tokens)
        seconds, memory, compute = seconds + one.seconds, memory + one.memory_s, compute + one.compute_s
    return Terms(seconds, memory, compute)
