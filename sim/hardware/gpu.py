"""Datasheet facts of GPUs. Fitted efficiencies live in `profile.py`. Catalogue: `sim/hardware/data/gpus/*.yaml`."""

from pydantic import Field

from sim.spec import Spec
from sim.units import Bytes, BytesPerS, FlopPerS, PositiveCount


class Gpu(Spec):
    """One GPU as its datasheet has it: dense peaks (no sparsity), 0 where a format is not supported.

    Attributes:
        memory: what the CUDA (or HIP) runtime reports as the total, where known: an engine's memory budget starts
            from it, and it is a few per cent off the datasheet's figure either way. `notes` says which it is.
        link: name of the GPU-to-GPU link; `link_bandwidth` and `pcie_bandwidth` are per direction.
        sms: streaming multiprocessors (compute units, Xe cores).
        certain: False for rows that were recalled or where sources conflict; `notes` says what.
    """

    name: str
    vendor: str
    arch: str
    sms: PositiveCount
    bf16: FlopPerS
    fp8: FlopPerS
    fp4: FlopPerS
    int8: FlopPerS
    memory: Bytes
    memory_bandwidth: BytesPerS
    l2: Bytes
    link: str
    link_bandwidth: BytesPerS
    pcie_bandwidth: BytesPerS
    tdp_w: float = Field(gt=0)
    certain: bool = True
    notes: str = ""
    source: str
