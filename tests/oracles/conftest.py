"""The production server driven with hand-made costs, for comparison with closed forms."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import simpy

from sim.acceptance.base import Tape
from sim.cost.base import BoundCost, ForwardPass, HostOverhead, PassPrice
from sim.draft_length.base import TableRule
from sim.metrics.record import RunRecord
from sim.rng import Streams
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.schedule import Scheduler
from sim.server.assemble import assemble
from sim.server.recorder import Ledger, Recorder
from sim.server.server import Server
from sim.speculation.base import DraftWork
from sim.workload.requests import RequestTable


@dataclass(frozen=True)
class TwoTimes:
    """A pass that holds a prompt takes `prefill_s`, any other `decode_s` plus `per_token_s` per token."""

    prefill_s: float
    decode_s: float
    per_token_s: float = 0.0

    def price(self, forward: ForwardPass) -> PassPrice:
        decoding = forward.num_draft_tokens > 0 or forward.extend.num_seqs == 0
        seconds = self.decode_s + self.per_token_s * forward.num_tokens if decoding else self.prefill_s
        return PassPrice(seconds, seconds, 0.0, 0.0, 0.0, 0.0, True)


@dataclass(frozen=True)
class PerPass:
    """A drafter with a fixed time per draft token position."""

    seconds: float = 0.0

    def draft_seconds(self, work: DraftWork) -> float:
        return self.seconds * work.num_draft_tokens if work.num_seqs else 0.0


@dataclass(frozen=True)
class Job:
    """Requests of equal lengths, acceptance i.i.d., one engine."""

    num_requests: int
    prompt: int
    output: int
    alpha: float
    k: int
    cost: TwoTimes
    drafter: PerPass = PerPass()
    max_num_seqs: int = 1
    seed: int = 7

    def table(self, arrival_ns: np.ndarray) -> RequestTable:
        n = self.num_requests
        lengths = np.full(n, self.prompt), np.full(n, self.output)
        return RequestTable(arrival_ns, *lengths, np.zeros(n, np.int64), np.ones(n, np.bool_))

    def tape(self, table: RequestTable) -> Tape:
        width = self.output + self.k
        u = Streams(self.seed).per_position("acceptance", np.full(self.num_requests, width))
        good = u.reshape(self.num_requests, width) < self.alpha
        accepted = np.zeros((self.num_requests, self.output), np.uint8)
        alive = np.ones_like(accepted, dtype=np.bool_)
        for d in range(self.k):
            alive &= good[:, d : d + self.output]
            accepted += alive
        return Tape(accepted.ravel())

    def poisson(self, rate: float) -> np.ndarray:
        u = Streams(self.seed).per_row("arrivals", self.num_requests)
        return np.cumsum(-np.log1p(-u) / rate * 1e9).astype(np.int64)

    def run(self, arrival_ns: np.ndarray | None = None, users: int = 0) -> RunRecord:
        """Open loop at `arrival_ns`, or a closed loop of `users`."""
        table = self.table(np.zeros(self.num_requests, np.int64) if arrival_ns is None else arrival_ns)
        config = SchedulerConfig(self.max_num_seqs, 100_000, 10**6, 16, 10**7, self.k)
        scheduler = Scheduler(config, table, self.tape(table), TableRule.fixed(self.k))
        env, recorder = simpy.Environment(), Recorder(Ledger(table))
        cost = BoundCost(self.cost, self.cost, HostOverhead(0.0, 0.0), 0.0, "test", 0.0)
        server = Server(env, scheduler, cost, self.drafter, recorder)
        rows = iter(range(self.num_requests))

        def open_loop():  # type: ignore[no-untyped-def]
            for row in rows:
                yield env.timeout(int(table.arrival_ns[row]) - env.now)
                server.submit(row)

        def user():  # type: ignore[no-untyped-def]
            for row in rows:
                yield server.submit(row)

        for _ in range(users or 1):
            env.process(user() if users else open_loop())
        env.run()
        scheduler.check()
        return assemble(recorder.ledger, [(recorder, scheduler)])


@pytest.fixture(scope="session")
def job() -> Callable[..., Job]:
    return Job


@pytest.fixture(scope="session")
def two_times() -> type[TwoTimes]:
    return TwoTimes


@pytest.fixture(scope="session")
def per_pass() -> type[PerPass]:
    return PerPass
