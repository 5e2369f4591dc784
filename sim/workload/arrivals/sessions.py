"""`sessions`: multi-turn conversations; a turn's prompt is all that was said before, and new user tokens."""

from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, field_validator, model_validator
from simpy import Environment, Event

from sim.distributions import exponential_quantile, gamma_quantile
from sim.rng import Floats, Streams
from sim.units import PerSecond, PositiveCount, Seconds
from sim.workload.arrivals.base import (
    ARRIVALS,
    AUTOMATIC_MOST,
    ArrivalProcess,
    Submit,
    num_requests_at_rate,
    times_from_gaps,
)
from sim.workload.arrivals.closed import LEAST, MOST, ROUNDS
from sim.workload.lengths.base import LENGTHS, MIDPOINTS, LengthDistribution
from sim.workload.requests import Ints, RequestTable, Sessions

MAX_TURNS = 10_000


@ARRIVALS.register
class SessionArrivals(ArrivalProcess):
    """Conversations of several turns, each turn one request.

    Turn t + 1 is sent a time to think after the last token of turn t; its prompt is the prompt and the output of turn t
    and the user's new tokens (`workload.prompt_tokens`). A session ends early when a prompt reaches max_model_len.
    Sessions either start at `session_rate`, as a Poisson process, or `max_concurrent_sessions` of them are always
    under way.

    Attributes:
        turns: turns per session (`value`, `mean`, ... count turns).
        think_time: mean time from the last token of a turn to the next turn.
        think_time_cv: its coefficient of variation, gamma-distributed: 1 = exponential, 0 = always the mean.
        session_rate: sessions that start per second.
        max_concurrent_sessions: sessions under way; the users think as well, so fewer requests are in flight.
        ramp_s: time over which those sessions start.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "sessions", "turns": {"kind": "fixed", "value": 5}, "session_rate": 0.5},
                {
                    "kind": "sessions",
                    "turns": {"kind": "uniform", "min": 1, "max": 9},
                    "think_time": 5.0,
                    "max_concurrent_sessions": 32,
                },
            ]
        }
    )

    kind: Literal["sessions"] = "sessions"
    turns: Annotated[LengthDistribution, LENGTHS]
    think_time: Annotated[Seconds, Field(le=1e6)] = 10.0
    think_time_cv: Annotated[float, Field(ge=0, le=10)] = 1.0
    session_rate: Annotated[PerSecond, Field(le=1e6)] | None = None
    max_concurrent_sessions: Annotated[PositiveCount, Field(le=100_000)] | None = None
    ramp_s: Annotated[Seconds, Field(le=1e6)] = 0.0

    waits: ClassVar[bool] = True

    @field_validator("turns")
    @classmethod
    def _usable_turns(cls, turns: LengthDistribution) -> LengthDistribution:
        if turns.needs_trace:
            raise ValueError("kind trace says nothing about turns; allowed: any other kind")
        if (most := turns.max_tokens()) > MAX_TURNS:
            raise ValueError(f"up to {most:,} turns; allowed: at most {MAX_TURNS:,}, so state a `max`")
        return turns

    @model_validator(mode="after")
    def _one_loop(self) -> "SessionArrivals":
        if (self.session_rate is None) == (self.max_concurrent_sessions is None):
            raise ValueError("allowed: one of session_rate (open loop) and max_concurrent_sessions (closed loop)")
        if self.ramp_s and self.session_rate is not None:
            raise ValueError("ramp_s goes with max_concurrent_sessions only")
        return self

    @property
    def turns_before(self) -> float:
        """Mean number of earlier turns of a request: long sessions count with all their turns."""
        turns = self.turns.draw(MIDPOINTS)
        return float((turns * (turns - 1) / 2).sum() / turns.sum())

    @property
    def max_turns(self) -> int:
        """The longest session there can be."""
        return self.turns.max_tokens()

    def automatic_num_requests(self, trace_rows: int) -> int:
        """In whole sessions, as many as there would be requests in a closed loop or with Poisson arrivals."""
        if self.session_rate is not None:
            return min(num_requests_at_rate(self.session_rate * self.turns.mean_tokens()), AUTOMATIC_MOST)
        sessions = self.max_concurrent_sessions or 1
        requests = round(ROUNDS * sessions * self.turns.mean_tokens())
        return max(LEAST, min(requests, MOST), round(2 * sessions * self.turns.mean_tokens()))

    def sessions(self, num_requests: int, streams: Streams) -> Sessions:
        """Turns, session after session, and times to think; the last session is cut where the requests end."""
        turns = self.turns.draw(streams.per_row("sessions/turns", num_requests))
        first = np.cumsum(turns) - turns
        first = first[first < num_requests]
        rows = np.arange(num_requests)
        turn = rows - first[np.searchsorted(first, rows, side="right") - 1]
        think = self._think_s(streams.per_row("sessions/think", num_requests))
        return Sessions(turn, np.where(turn > 0, np.rint(think * 1e9), 0).astype(np.int64))

    def _think_s(self, uniforms: Floats) -> Floats:
        cv = self.think_time_cv
        if not cv or not self.think_time:
            return np.full(len(uniforms), self.think_time)
        if cv == 1.0:
            return exponential_quantile(uniforms, self.think_time)
        return gamma_quantile(uniforms, cv**-2, self.think_time * cv**2)

    def arrival_ns(self, num_requests: int, streams: Streams, trace_ns: Ints | None = None) -> Ints:
        """When each row's session starts; all 0 in the closed loop."""
        if self.session_rate is None:
            return np.zeros(num_requests, np.int64)
        index = np.cumsum(self.sessions(num_requests, streams).turn == 0) - 1
        gaps = exponential_quantile(streams.per_row("arrivals", int(index[-1]) + 1), 1 / self.session_rate)
        return np.asarray(times_from_gaps(gaps)[index])

    def drive(self, env: Environment, requests: RequestTable, submit: Submit) -> Generator[Event, Any, None]:
        """SimPy process: start sessions and follow each to its end."""
        if requests.sessions is None:
            raise ValueError("the request table holds no sessions")
        bounds = [*np.flatnonzero(requests.sessions.turn == 0).tolist(), len(requests)]
        think = requests.sessions.think_ns.tolist()
        queue = iter([range(start, end) for start, end in pairwise(bounds)])
        if self.max_concurrent_sessions is None:
            for rows in queue:
                gap = int(requests.arrival_ns[rows[0]]) - env.now
                if gap > 0:
                    yield env.timeout(gap)
                env.process(_session(env, rows, think, submit))
            return
        users = self.max_concurrent_sessions
        gap_ns = self.ramp_s * 1e9 / users
        yield env.all_of([env.process(_user(env, round(i * gap_ns), queue, think, submit)) for i in range(users)])


def _user(
    env: Environment, start_ns: int, queue: Iterator[range], think: list[int], submit: Submit
) -> Generator[Event, Any, None]:
    """One session after another."""
    if start_ns:
        yield env.timeout(start_ns)
    for rows in queue:
        yield from _session(env, rows, think, submit)


def _session(env: Environment, rows: range, think: list[int], submit: Submit) -> Generator[Event, Any, None]:
    """Turn after turn, until one is refused: the context is full."""
    for row in rows:
        if think[row]:
            yield env.timeout(think[row])
        done = submit(row)
        if done is not None and (yield done) is False:
            return
