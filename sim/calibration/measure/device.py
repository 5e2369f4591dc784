"""What timing needs of a GPU. `torch_device.py` is the real one; tests use another."""

from typing import Protocol

from sim.calibration.measure.plan import AttentionCase, GemmCase, Limits, StepCase
from sim.models.model import Model


class Device(Protocol):
    """One GPU that can time cases. Times are medians in microseconds; None where a case does not run (memory)."""

    @property
    def name(self) -> str:
        """What the driver calls the GPU."""
        ...

    @property
    def sms(self) -> int:
        """Streaming multiprocessors."""
        ...

    @property
    def limits(self) -> Limits:
        """Memory and L2 cache."""
        ...

    @property
    def stack(self) -> str:
        """Versions of PyTorch, CUDA and the driver's attention library, without commas."""
        ...

    @property
    def attention_kernel(self) -> str:
        """Which attention is timed."""
        ...

    def time_gemm(self, case: GemmCase) -> float | None:
        """One matrix product."""
        ...

    def time_attention(self, case: AttentionCase) -> float | None:
        """Attention of one layer."""
        ...

    def time_step(self, model: Model, case: StepCase) -> float | None:
        """All layers, LM head and greedy sampling, captured in one graph."""
        ...
