"""`trace`: recorded arrivals replayed, at the recorded rate or time-compressed."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.errors import Problem, ScenarioError
from sim.rng import Streams
from sim.workload.arrivals.base import ARRIVALS, MAX_HORIZON_S, ArrivalProcess
from sim.workload.requests import Ints


@ARRIVALS.register
class TraceReplay(ArrivalProcess):
    """Open loop at the times of `workload.trace`, counted from the start of its window, each request once.

    `rate_scale` multiplies the arrival rate: 2 replays twice as fast, all times divided by 2. Compression keeps bursts;
    thinning would wash them out. The times are the same in every replicate.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "trace", "rate_scale": 2}]})

    kind: Literal["trace"] = "trace"
    rate_scale: Annotated[
        float, Field(gt=0, le=1e6, description="Factor on the arrival rate: 2 replays twice as fast.")
    ] = 1.0

    needs_trace: ClassVar[bool] = True

    def automatic_num_requests(self, trace_rows: int) -> int:
        """Every request of the window."""
        return trace_rows

    def arrival_ns(self, num_requests: int, streams: Streams, trace_ns: Ints | None = None) -> Ints:
        """The first N times of the window, divided by `rate_scale`.

        Raises:
            ScenarioError: the window has fewer requests, or the replay would take longer than MAX_HORIZON_S.
        """
        rows = 0 if trace_ns is None else len(trace_ns)
        if trace_ns is None or num_requests > rows:
            allowed = f"the trace window has {rows} requests, and arrivals of kind trace replay each once"
            raise ScenarioError([Problem("", "workload.num_requests", f"found {num_requests}; {allowed}")])
        times = trace_ns[:num_requests] / self.rate_scale
        if times[-1] > MAX_HORIZON_S * 1e9:
            message = f"the replay would take {times[-1] / 1e9:.3g} s; at most {MAX_HORIZON_S:.0e} s"
            raise ScenarioError([Problem("", "workload.arrivals.rate_scale", message)])
        return np.rint(times).astype(np.int64)
