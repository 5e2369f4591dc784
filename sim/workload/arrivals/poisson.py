"""`poisson`: independent users; exponential gaps."""

from typing import Literal

from pydantic import ConfigDict

from sim.distributions import exponential_quantile
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
class Poisson(ArrivalProcess):
    """Open loop with `request_rate` requests per second on average, gaps exponential."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "poisson", "request_rate": 4}]})

    kind: Literal["poisson"] = "poisson"
    request_rate: RequestRate

    def automatic_num_requests(self, trace_rows: int) -> int:
        """Ten minutes of traffic, at least 2,000 and at most 50,000 requests."""
        return num_requests_at_rate(self.request_rate)

    def arrival_ns(self, num_requests: int, streams: Streams, trace_ns: Ints | None = None) -> Ints:
        """One uniform per gap."""
        return times_from_gaps(exponential_quantile(streams.per_row("arrivals", num_requests), 1 / self.request_rate))
