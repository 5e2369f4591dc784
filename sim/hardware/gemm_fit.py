"""Fitted parameters of matrix products (`sim.cost.gemm`, docs/background/cost-model.md, "Matrix products")."""

from pydantic import Field

from sim.hardware.step_fit import Fit


class GemmFit(Fit):
    """t = S_p(bytes/(BW e_m), 2 M' N (K + fill)/(F e_c)) + launch + per_1000_inputs K/1000 + quantise_passes 3 M K/BW.

    Attributes:
        smoothness: p of the smooth maximum; none means a hard maximum.
        fill_inputs: what filling and draining the pipeline of a tile costs, in inputs: short inner dimensions reach
            less of the peak.
        tile_rows: rows of an output tile; M' is M rounded up to whole tiles, or to halves of tiles at 1.1 times the
            price of a row if that is less. 1: not told apart.
        rereads: each 128 outputs read the inputs of all rows again, from the L2 cache: what that costs in units of
            reading them from memory. So a batch costs bandwidth long before it costs compute.
    """

    memory_efficiency: float = Field(gt=0)
    compute_efficiency: float = Field(gt=0)
    smoothness: float | None = Field(None, ge=1)
    launch_us: float = Field(ge=0)
    per_1000_inputs_us: float = Field(ge=0)
    quantise_passes: float = Field(0.0, ge=0)
    fill_inputs: float = Field(0.0, ge=0)
    tile_rows: int = Field(1, ge=1)
    rereads: float = Field(0.0, ge=0)
