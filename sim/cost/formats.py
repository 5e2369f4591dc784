"""Which arithmetic a weight format runs in on a given GPU, and with which fitted parameters."""

from typing import NamedTuple

from sim.hardware.gpu import Gpu
from sim.models.model import WEIGHT_BYTES


class Format(NamedTuple):
    """A weight format on one GPU.

    Attributes:
        key: name of the fitted parameters: bf16, fp8 or nvfp4.
        weight_bytes, activation_bytes: per element, as the matrix product reads them.
        peak_flops: dense peak of the arithmetic, FLOP/s.
        fitted: False where the parameters were fitted on another format (weight-only kernels, INT8, MXFP4).
    """

    key: str
    weight_bytes: float
    activation_bytes: float
    peak_flops: float
    fitted: bool

    @property
    def weight_only(self) -> bool:
        """Weights are small in memory but multiplied in BF16 (Marlin-like kernels)."""
        return self.key == "bf16" and self.weight_bytes < 2.0


def resolve_format(dtype: str, gpu: Gpu) -> Format:
    """How `gpu` multiplies weights of `dtype` (resolved: never "auto").

    A format without hardware support (FP8 on Ampere, FP4 before Blackwell, INT4 anywhere) is read in its own size and
    multiplied in BF16, as vLLM's Marlin kernels do; so is MXFP4 on all GPUs: its measured kernels keep 16-bit
    activations even on Blackwell.
    """
    size = WEIGHT_BYTES[dtype]
    native = {
        "bf16": Format("bf16", 2.0, 2.0, gpu.bf16, True),
        "fp16": Format("bf16", 2.0, 2.0, gpu.bf16, True),
        "fp8": Format("fp8", size, 1.0, gpu.fp8, True),
        "int8": Format("fp8", size, 1.0, gpu.int8, False),
        "nvfp4": Format("nvfp4", size, size, gpu.fp4, True),
    }.get(dtype)
    if native is not None and native.peak_flops >= gpu.bf16 > 0:
        return native
    return Format("bf16", size, 2.0, gpu.bf16, False)
