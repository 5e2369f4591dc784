"""Fitted parameters of the collectives of a group of GPUs: sections of a profile."""

from typing import Literal

from pydantic import Field

from sim.hardware.step_fit import Fit

LinkClass = Literal["nvlink", "pcie"]

#: Collectives of one form beside the all-reduce.
ExchangeKind = Literal["all_gather", "all_to_all"]


class CollectiveFit(Fit):
    """All-reduce of S bytes on n GPUs: min(S_p(one_shot, (n-1) S/(L e1)), two_shot + 2 (n-1)/n S/(L e2)).

    With `one_shot_smoothness` p = 1 the first form is affine; above, small messages hide in its latency.
    """

    one_shot_us: float | None = Field(None, ge=0)
    one_shot_efficiency: float = Field(1.0, gt=0)
    one_shot_smoothness: float = Field(1.0, ge=1)
    two_shot_us: float | None = Field(None, ge=0)
    two_shot_efficiency: float = Field(1.0, gt=0)


class ExchangeFit(Fit):
    """All-gather or all-to-all of S bytes on n GPUs, the faster of two protocols.

    min(S_p(quick, (n-1)/n S/(L e1)), bulk + (n-1)/n S/(L e2)); S is what one GPU has in the end (all-gather) or in the
    beginning (all-to-all). NCCL has a protocol for short messages, which wastes bandwidth, and one for long ones.
    """

    quick_us: float | None = Field(None, ge=0)
    quick_efficiency: float = Field(1.0, gt=0)
    quick_smoothness: float = Field(1.0, ge=1)
    bulk_us: float = Field(ge=0)
    bulk_efficiency: float = Field(gt=0)
