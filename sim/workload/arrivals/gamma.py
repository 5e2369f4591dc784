"""`gamma`: burstier or smoother than Poisson; gamma-distributed gaps, as in `vllm bench serve --burstiness`."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sim.distributions import gamma_quantile
from sim.rng import Streams
from sim.workload.arrivals.base import (
    ARRIVALS,
    ArrivalProcess,
    RequestRate,
    num_requests_at_rate,
    times_from_gaps,
)
from sim.workload.requests import Ints


@ARRIVALS.register
class Gamma(ArrivalProcess):
    """Open loop with `request_rate` requests per second on average, gaps gamma-distributed.

    `burstiness` is vLLM's: the shape of the gamma distribution. 1 is Poisson, below 1 burstier, above 1 more regular;
    the coefficient of variation of the gaps is 1 / sqrt(burstiness).
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "gamma", "request_rate": 4, "burstiness": 0.5}]})

    kind: Literal["gamma"] = "gamma"
    request_rate: RequestRate
    burstiness: Annotated[float, Field(ge=0.01, le=10_000, description="Shape of the gaps: 1 Poisson, < 1 bursty.")]

    def automatic_num_requests(self, trace_rows: int) -> int:
        """Ten minutes of traffic, at least 2,000 and at most 50,000 requests."""
        return num_requests_at_rate(self.request_rate)

    def arrival_ns(self, num_requests: int, streams: Streams, trace_ns: Ints | None = None) -> Ints:
        """One uniform per gap."""
        scale = 1 / (self.request_rate * self.burstiness)
        return times_from_gaps(gamma_quantile(streams.per_row("arrivals", num_requests), self.burstiness, scale))
