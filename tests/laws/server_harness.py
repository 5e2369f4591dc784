"""One run of the server on a random small workload, for the law tests: stub prices, all else real."""

import dataclasses
import hashlib
from dataclasses import dataclass

import numpy as np
import simpy

from sim.acceptance.base import Tape
from sim.cost.base import BoundCost, ForwardPass, HostOverhead, PassPrice
from sim.draft_length.base import TableRule
from sim.metrics.record import RunRecord
from sim.scheduler.overlapped import OverlappedScheduler
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.schedule import Scheduler
from sim.server.assemble import assemble
from sim.server.overlapped import OverlappedServer
from sim.server.recorder import Ledger, Recorder
from sim.server.server import Server
from sim.speculation.base import DraftWork
from sim.workload.requests import RequestTable, SharedPrefixes

ROOMY = SchedulerConfig(
    max_num_seqs=64, max_num_scheduled_tokens=100_000, max_model_len=4096, block_size=16, num_blocks=10_000
)


@dataclass(frozen=True)
class LinearCost:
    """Whole nanoseconds: per pass, per token, per KV token read and per draft verified."""

    step_ns: int = 5_000_000
    token_ns: int = 20_000
    kv_ns: int = 50
    scale: int = 1

    def price(self, forward: ForwardPass) -> PassPrice:
        kv = forward.decode.kv_tokens_read + forward.extend.kv_tokens_read
        seconds = self.scale * (self.step_ns + self.token_ns * forward.num_tokens + self.kv_ns * kv) * 1e-9
        return PassPrice(seconds, seconds, 0.0, 0.0, 0.0, 0.0, True)


@dataclass(frozen=True)
class PerDraft:
    """A drafter that takes a fixed time per draft position."""

    draft_ns: int = 0

    def draft_seconds(self, work: DraftWork) -> float:
        return self.draft_ns * work.num_draft_tokens * 1e-9


@dataclass(frozen=True)
class Workload:
    table: RequestTable
    uniforms: np.ndarray  # (positions, 8)

    def tape(self, alpha: float) -> Tape:
        """Independent acceptance with one flag per position, so that p + tape[p] never decreases."""
        flags = self.uniforms[:, 0] < alpha
        run = np.zeros(len(flags) + 1, np.int64)
        for i in range(len(flags) - 1, -1, -1):
            run[i] = run[i + 1] + 1 if flags[i] else 0
        return Tape(np.minimum(run[:-1], 60).astype(np.uint8))


def workload(seed: int, n: int = 24, prompt: int = 60, output: int = 40, gap_ns: int = 20_000_000) -> Workload:
    rng = np.random.Generator(np.random.Philox(seed))
    table = RequestTable(
        arrival_ns=np.cumsum(rng.integers(0, gap_ns, n) * (rng.random(n) < 0.8)),
        prompt_tokens=rng.integers(1, prompt, n),
        output_tokens=rng.integers(1, output, n),
        class_id=np.zeros(n, np.int64),
        speculate=rng.random(n) < (1.0 if seed % 2 else 0.8),
    )
    return Workload(table, rng.random((table.num_positions, 1)))


def sharing(w: Workload, seed: int) -> Workload:
    """The same requests, most of which begin like an earlier one."""
    rng, prompt = np.random.Generator(np.random.Philox(seed + 30_000)), w.table.prompt_tokens
    rows = np.arange(len(prompt))
    parent = np.where((rows > 0) & (rng.random(len(rows)) < 0.8), (rng.random(len(rows)) * rows).astype(np.int64), -1)
    longest = np.minimum(prompt, (prompt + w.table.output_tokens)[parent])
    tokens = np.where(parent >= 0, np.where(rng.random(len(rows)) < 0.5, longest, longest // 2), 0)
    return Workload(dataclasses.replace(w.table, prefixes=SharedPrefixes(parent, tokens)), w.uniforms)


def config(seed: int) -> SchedulerConfig:
    """Limits that bind: small budgets, and pools that often run dry but always hold the longest request."""
    rng = np.random.Generator(np.random.Philox(seed + 10_000))
    block_size = int(rng.choice([1, 4, 16]))
    return SchedulerConfig(
        max_num_seqs=int(rng.integers(1, 20)),
        max_num_scheduled_tokens=int(rng.integers(8, 200)),
        max_model_len=int(rng.choice([70, 120, 4096])),
        block_size=block_size,
        num_blocks=-(-int(rng.choice([130, 260, 5000])) // block_size),
        lookahead_tokens=int(rng.choice([0, 3])),
        long_prefill_token_threshold=int(rng.choice([0, 0, 17])),
        scheduler_reserve_full_isl=bool(rng.random() < 0.7),
        watermark=float(rng.choice([0.0, 0.1])),
    )


def serve(
    w: Workload,
    limits: SchedulerConfig,
    k: int = 3,
    alpha: float = 0.6,
    users: int = 0,
    cost: LinearCost | None = None,
    drafter: PerDraft | None = None,
    leap: bool = True,
    overlapped: bool = False,
) -> RunRecord:
    """One run: arrivals from the table, or a closed loop of `users`."""
    env, recorder = simpy.Environment(), Recorder(Ledger(w.table))
    price = cost or LinearCost()
    bound = BoundCost(price, price, HostOverhead(0.0, 0.0), 0.0, "test", 0.0)
    scheduler: Scheduler
    if overlapped:
        scheduler = OverlappedScheduler(limits, w.table, w.tape(alpha), TableRule.fixed(k))
        server: Server = OverlappedServer(env, scheduler, bound, drafter or PerDraft(), recorder)
    else:
        scheduler = Scheduler(limits, w.table, w.tape(alpha), TableRule.fixed(k))
        server = Server(env, scheduler, bound, drafter or PerDraft(), recorder, leap=leap)
    rows = iter(range(len(w.table)))

    def arrivals():
        for row in rows:
            if w.table.arrival_ns[row] > env.now:
                yield env.timeout(int(w.table.arrival_ns[row]) - env.now)
            server.submit(row)

    def user():
        for row in rows:
            yield server.submit(row)

    for process in [user() for _ in range(users)] or [arrivals()]:
        env.process(process)
    env.run()
    scheduler.check()
    assert scheduler.idle
    assert scheduler.pool.free == limits.num_blocks
    assert scheduler.cache.surplus == 0
    return assemble(recorder.ledger, [(recorder, scheduler)])


def digest(run: RunRecord) -> str:
    """Hash of every array and number of a run."""
    h = hashlib.sha256()
    for part in (run.requests, run.steps, run):
        for f in dataclasses.fields(part):
            value = getattr(part, f.name)
            if isinstance(value, np.ndarray):
                h.update(f"{f.name}{value.dtype}{value.shape}".encode() + value.tobytes())
    return h.hexdigest()


def chunks(run: RunRecord) -> list[np.ndarray]:
    """Positions where chunks start, per request."""
    q = run.requests
    started = [run.emission_step[a : a + n] >= 0 for a, n in zip(q.output_offset, q.output_tokens, strict=True)]
    return [np.flatnonzero(s) for s in started]
