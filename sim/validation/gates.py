"""What the physics is meant to reach, in mean absolute per cent on points left out of the fit."""

from collections.abc import Sequence
from typing import NamedTuple

from sim.calibration.fit import ErrorStats
from sim.validation.physics import Comparison, Report, pooled
from sim.validation.servers import ServerRow, server_gates
from sim.validation.steps import StepErrors


class Gate(NamedTuple):
    """A target and what was found; `found` is None when the folder has no such rows."""

    name: str
    limit_percent: float
    found: ErrorStats | None

    @property
    def verdict(self) -> str:
        """`met`, `missed by x` or `no data`."""
        if self.found is None:
            return "no data"
        excess = self.found.mape - self.limit_percent
        return "met" if excess <= 0 else f"missed by {excess:.1f}"


#: GPU, format and limit of matrix products; other GPUs are held to the loosest BF16 limit.
_BF16 = {"H100-SXM": 7.0, "B200-SXM": 7.0, "A100-SXM-80GB": 8.5, "L40S": 10.0}
_OTHER_BF16, _FP8 = 10.0, 11.0
_POOLED = {"decode attention": 8.0, "prefill attention": 12.0, "experts": 12.0, "all-reduce": 7.0}
_STEPS = {"decode": 4.0, "verify": 9.0, "mixed": 9.0}


def gates(report: Report, steps: Sequence[StepErrors], servers: Sequence[ServerRow] = ()) -> list[Gate]:
    """All targets with what was found."""
    tpot = [Gate(*found) for found in server_gates(servers)]
    return [*_products(report.comparisons), *_pools(report.comparisons), *_whole_steps(steps), *tpot]


def _products(comparisons: Sequence[Comparison]) -> list[Gate]:
    found = []
    for own in comparisons:
        if own.operator == "GEMM" and own.kind == "bfloat16":
            limit = _BF16.get(own.gpu, _OTHER_BF16)
            found.append(Gate(f"BF16 GEMM, {own.gpu}", limit, own.errors("left_out_us")))
        if own.operator == "GEMM" and own.kind == "fp8":
            found.append(Gate(f"FP8 GEMM, {own.gpu}", _FP8, own.errors("left_out_us")))
    return found


def _pools(comparisons: Sequence[Comparison]) -> list[Gate]:
    found = []
    for operator, limit in _POOLED.items():
        usable = [own for own in comparisons if own.operator == operator and own.usable_kernel]
        found.append(Gate(f"{operator}, pooled", limit, pooled(usable, "left_out_us")))
    return found


def _whole_steps(steps: Sequence[StepErrors]) -> list[Gate]:
    return [
        Gate(f"{own.kind} step, {own.model} on {own.gpu}", _STEPS[own.kind], own.left_out or own.shipped)
        for own in steps
    ]
