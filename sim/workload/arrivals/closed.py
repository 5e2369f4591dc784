"""`closed`: a fixed number of users, each sending its next request when the last one is done."""

from collections.abc import Generator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field
from simpy import Environment, Event

from sim.rng import Streams
from sim.units import PositiveCount, Seconds
from sim.workload.arrivals.base import ARRIVALS, ArrivalProcess, Submit
from sim.workload.requests import Ints, RequestTable

#: The automatic number of requests: ROUNDS per user within these limits, but never fewer than two per user.
ROUNDS, LEAST, MOST = 8, 200, 10_000


@ARRIVALS.register
class ClosedLoop(ArrivalProcess):
    """Closed loop: `max_concurrency` users take requests from one queue in table order and wait for each.

    The rows in flight are always `max_concurrency` until the queue is empty. With `ramp_s` user i starts at
    i * ramp_s / max_concurrency, so that prompts do not all arrive at once.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "closed", "max_concurrency": 64}]})

    kind: Literal["closed"] = "closed"
    max_concurrency: Annotated[PositiveCount, Field(le=100_000, description="Requests in flight.")]
    ramp_s: Annotated[Seconds, Field(le=1e6, description="Time over which the users start.")] = 0.0

    waits: ClassVar[bool] = True

    def automatic_num_requests(self, trace_rows: int) -> int:
        """8 requests per user, at least 200 and at most 10,000, but never fewer than 2 per user."""
        users = self.max_concurrency
        return max(LEAST, min(ROUNDS * users, MOST), 2 * users)

    def arrival_ns(self, num_requests: int, streams: Streams, trace_ns: Ints | None = None) -> Ints:
        """All 0: a request arrives when a user is free."""
        return np.zeros(num_requests, np.int64)

    def drive(self, env: Environment, requests: RequestTable, submit: Submit) -> Generator[Event, Any, None]:
        """SimPy process: start the users and wait until all are done."""
        queue = iter(range(len(requests)))

        def user(start_ns: int) -> Generator[Event, Any, None]:
            if start_ns:
                yield env.timeout(start_ns)
            for row in queue:
                if (done := submit(row)) is not None:
                    yield done

        gap_ns = self.ramp_s * 1e9 / self.max_concurrency
        users = range(min(self.max_concurrency, len(requests)))
        yield env.all_of([env.process(user(round(index * gap_ns))) for index in users])
