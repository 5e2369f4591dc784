"""When requests arrive. Contract of this folder; written under `workload.arrivals:`.

A process has two sides: `arrival_ns` draws the times (pure), `drive` submits the rows in simulated time. Open loops
(poisson, gamma, trace) submit whatever the server does; the closed loop waits for it.
"""

from collections.abc import Callable, Generator
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from simpy import Environment, Event

from sim.errors import Problem, ScenarioError
from sim.rng import Floats, Streams
from sim.spec import Family, Spec
from sim.units import PerSecond
from sim.workload.requests import Ints, RequestTable, Sessions

#: Simulated time is at most 1e9 s (32 years): 64-bit nanoseconds with room to spare.
MAX_HORIZON_S = 1e9

#: The automatic number of requests of an open loop without a trace: ten minutes of traffic, within these limits.
AUTOMATIC_SECONDS, AUTOMATIC_LEAST, AUTOMATIC_MOST = 600, 2000, 50_000

#: Hands a row to the server; where the process waits, it returns an event that fires when the request is done, with the
#: value False if it was refused.
Submit = Callable[[int], Event | None]
RequestRate = Annotated[PerSecond, Field(le=1e6, description="Mean arrivals per second.")]


class ArrivalProcess(Spec):
    """Arrival times of a workload's rows, and how the rows are handed to the server."""

    kind: str

    #: Whether times come from the rows of `workload.trace`.
    needs_trace: ClassVar[bool] = False
    #: Whether `drive` waits for requests to be done (closed loop); otherwise `submit` need not return an event.
    waits: ClassVar[bool] = False

    @property
    def turns_before(self) -> float:
        """Mean number of earlier turns of a request's session; 0 where requests stand for themselves."""
        return 0.0

    @property
    def max_turns(self) -> int:
        """Turns of the longest session."""
        return 1

    def sessions(self, num_requests: int, streams: Streams) -> Sessions | None:
        """Which requests belong to one conversation; None when every request stands for itself."""
        return None

    def automatic_num_requests(self, trace_rows: int) -> int:
        """How many requests to run when the user does not say.

        Args:
            trace_rows: requests in the trace window; 0 without a trace.
        """
        raise NotImplementedError

    def arrival_ns(self, num_requests: int, streams: Streams, trace_ns: Ints | None = None) -> Ints:
        """Arrival times; more requests never change the first ones.

        Args:
            num_requests: N.
            streams: random numbers of the replicate; the stream is `arrivals`.
            trace_ns: arrival times of the trace window; None without a trace.

        Returns:
            (N,) nanoseconds, non-decreasing.

        Raises:
            ScenarioError: the arrivals would take longer than MAX_HORIZON_S.
        """
        raise NotImplementedError

    def drive(self, env: Environment, requests: RequestTable, submit: Submit) -> Generator[Event, Any, None]:
        """SimPy process: submit each row at its time (here: open loop, one event per distinct time).

        Args:
            env: the simulation, in integer nanoseconds.
            requests: what to submit.
            submit: hands a row to the server; must return an event if the process `waits`.
        """
        for row, time in enumerate(requests.arrival_ns.tolist()):
            gap = time - env.now
            if gap > 0:
                yield env.timeout(gap)
            submit(row)


ARRIVALS: Family[ArrivalProcess] = Family("arrivals", "sim.workload.arrivals")


def num_requests_at_rate(request_rate: float) -> int:
    """The automatic number of requests at this rate: see AUTOMATIC_SECONDS."""
    return int(np.clip(np.ceil(AUTOMATIC_SECONDS * request_rate), AUTOMATIC_LEAST, AUTOMATIC_MOST))


def times_from_gaps(gaps_s: Floats) -> Ints:
    """Running sum of gaps, each rounded once to nanoseconds; the first request comes after the first gap."""
    if gaps_s.sum() > MAX_HORIZON_S:
        message = f"{len(gaps_s)} requests would take {gaps_s.sum():.3g} s to arrive; at most {MAX_HORIZON_S:.0e} s"
        raise ScenarioError([Problem("", "workload.arrivals", message)])
    return np.cumsum(np.rint(gaps_s * 1e9).astype(np.int64))
