"""What a tensor-parallel group exchanges: all-reduces of the residual stream, and gathers of the logits.

Equations and sources: docs/background/cost-model.md, "Collectives".
"""

import math
from typing import NamedTuple

from sim.cost.smooth import smaller, smooth_max
from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, CollectiveFit, ExchangeFit, ExchangeKind, LinkClass


class Collective(NamedTuple):
    """`num_calls` collectives of a pass, each the faster of two forms, for a number of rows that all GPUs hold.

    Attributes:
        num_calls: in one pass; 0 on one GPU.
        short_s, short_per_row_s: the form for few rows, S_p(short, rows x per_row); infinite where there is none.
        long_s, long_per_row_s: the form for many rows, affine.
        smoothness: p of the first form.
    """

    num_calls: int
    short_s: float
    short_per_row_s: float
    long_s: float
    long_per_row_s: float
    smoothness: float = 1.0

    def seconds(self, rows: int) -> float:
        """Time of all of them in one pass."""
        if not self.num_calls:
            return 0.0
        short = math.inf
        if self.short_s < math.inf:
            short = smooth_max(self.short_s, rows * self.short_per_row_s, self.smoothness)
        return self.num_calls * smaller(short, self.long_s + rows * self.long_per_row_s)


NO_COLLECTIVE = Collective(0, 0.0, 0.0, 0.0, 0.0)


class Group(NamedTuple):
    """Tensor-parallel GPUs and the fitted parameters of their collectives."""

    num_gpus: int
    gpu: Gpu
    chosen: ChosenProfile

    def all_reduces(self, num_calls: int, bytes_per_row: float) -> Collective:
        """All-reduces of `bytes_per_row` for every row; none on one GPU."""
        if self.num_gpus == 1:
            return NO_COLLECTIVE
        fit = self.chosen.collective(link_class(self.gpu), self.num_gpus)
        return all_reduce(num_calls, bytes_per_row, self.num_gpus, self.gpu, fit)

    def exchanges(self, kind: ExchangeKind, num_calls: int, bytes_per_row: float) -> Collective:
        """Exchanges of `bytes_per_row` for every row, in total over the GPUs' shares; none on one GPU."""
        if self.num_gpus == 1:
            return NO_COLLECTIVE
        fit = self.chosen.exchange(kind, link_class(self.gpu), self.num_gpus)
        return exchange(num_calls, bytes_per_row, self.num_gpus, self.gpu, fit)


def all_reduce(num_calls: int, bytes_per_row: float, num_gpus: int, gpu: Gpu, fit: CollectiveFit) -> Collective:
    """`num_calls` all-reduces of `bytes_per_row` for every row, with the parameters `fit`."""
    link = gpu.link_bandwidth
    return Collective(
        num_calls=num_calls,
        short_s=math.inf if fit.one_shot_us is None else fit.one_shot_us * 1e-6,
        short_per_row_s=(num_gpus - 1) * bytes_per_row / (link * fit.one_shot_efficiency),
        long_s=math.inf if fit.two_shot_us is None else fit.two_shot_us * 1e-6,
        long_per_row_s=2.0 * (num_gpus - 1) / num_gpus * bytes_per_row / (link * fit.two_shot_efficiency),
        smoothness=fit.one_shot_smoothness,
    )


def exchange(num_calls: int, bytes_per_row: float, num_gpus: int, gpu: Gpu, fit: ExchangeFit) -> Collective:
    """`num_calls` all-gathers or all-to-alls with the parameters `fit`.

    Each GPU sends or receives all of `bytes_per_row` but its own share, 1/n.
    """
    moved = (num_gpus - 1) / num_gpus * bytes_per_row / gpu.link_bandwidth
    return Collective(
        num_calls=num_calls,
        short_s=math.inf if fit.quick_us is None else fit.quick_us * 1e-6,
        short_per_row_s=moved / fit.quick_efficiency,
        long_s=fit.bulk_us * 1e-6,
        long_per_row_s=moved / fit.bulk_efficiency,
        smoothness=fit.quick_smoothness,
    )


def link_class(gpu: Gpu) -> LinkClass:
    """PCIe hosts behave differently from switched links."""
    return "pcie" if gpu.link.casefold().startswith("pcie") else "nvlink"
