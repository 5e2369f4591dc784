"""All-reduces of tensor parallelism: two per layer, one-shot or two-shot, whichever is faster.

Equation and sources: docs/background/cost-model.md, "Collectives".
"""

import math
from typing import NamedTuple

from sim.cost.smooth import smaller, smooth_max
from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, CollectiveFit, LinkClass


class AllReduce(NamedTuple):
    """All-reduce of `tokens` rows of the residual stream: the faster of two forms; `num_calls` in a pass."""

    num_calls: int
    one_shot_s: float
    one_shot_per_token_s: float
    two_shot_s: float
    two_shot_per_token_s: float
    one_shot_smoothness: float = 1.0

    def seconds(self, tokens: int) -> float:
        """Time of all of them in one pass."""
        if not self.num_calls:
            return 0.0
        one_shot = math.inf
        if self.one_shot_s < math.inf:
            one_shot = smooth_max(self.one_shot_s, tokens * self.one_shot_per_token_s, self.one_shot_smoothness)
        return self.num_calls * smaller(one_shot, self.two_shot_s + tokens * self.two_shot_per_token_s)


NO_ALL_REDUCE = AllReduce(0, 0.0, 0.0, 0.0, 0.0)


def bind_all_reduce(layers: int, hidden: int, num_gpus: int, gpu: Gpu, chosen: ChosenProfile) -> AllReduce:
    """Two all-reduces a layer of `hidden` 16-bit values per token; none on one GPU."""
    if num_gpus == 1:
        return NO_ALL_REDUCE
    return all_reduce(2 * layers, 2.0 * hidden, num_gpus, gpu, chosen.collective(link_class(gpu), num_gpus))


def all_reduce(num_calls: int, bytes_per_token: float, num_gpus: int, gpu: Gpu, fit: CollectiveFit) -> AllReduce:
    """`num_calls` all-reduces of `bytes_per_token` for every token, with the parameters `fit`."""
    link = gpu.link_bandwidth
    return AllReduce(
        num_calls=num_calls,
        one_shot_s=math.inf if fit.one_shot_us is None else fit.one_shot_us * 1e-6,
        one_shot_per_token_s=(num_gpus - 1) * bytes_per_token / (link * fit.one_shot_efficiency),
        two_shot_s=math.inf if fit.two_shot_us is None else fit.two_shot_us * 1e-6,
        two_shot_per_token_s=2.0 * (num_gpus - 1) / num_gpus * bytes_per_token / (link * fit.two_shot_efficiency),
        one_shot_smoothness=fit.one_shot_smoothness,
    )


def link_class(gpu: Gpu) -> LinkClass:
    """PCIe hosts behave differently from switched links."""
    return "pcie" if gpu.link.casefold().startswith("pcie") else "nvlink"
