"""Service-level objectives and goodput, as `vllm bench serve --goodput` counts them."""

from dataclasses import dataclass

import numpy as np

from sim.metrics.latency import Latencies
from sim.metrics.record import Bools


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits in milliseconds (None: no limit) and the share of requests that has to meet them all.

    Attributes:
        ttft, tpot, e2el: upper limits, `<=` passes.
        percentile: that share, in percent.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None
    percentile: float = 99.0

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.ttft, self.tpot, self.e2el))


def good_requests(times: Latencies, slo: Slo) -> Bools:
    """(N,) finished requests that meet every limit; TPOT counts as 0 for a single output token."""
    good: Bools = ~np.isnan(times.e2el)
    for limit, values in ((slo.ttft, times.ttft), (slo.e2el, times.e2el), (slo.tpot, np.nan_to_num(times.tpot))):
        if limit is not None:
            good = good & (values <= limit)
    return good
