"""Whatever a K rule does, the server's laws hold; rules that say the same give the same bytes."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import simpy

from sim.cost.base import BoundCost, HostOverhead
from sim.draft_length.base import NO_SWITCHING, Choice, Load, Rule, Switching, TableRule
from sim.scheduler.overlapped import OverlappedScheduler
from sim.scheduler.schedule import Scheduler
from sim.server.assemble import assemble
from sim.server.overlapped import OverlappedServer
from sim.server.recorder import Ledger, Recorder
from sim.server.server import Server

h = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("server_harness.py"))))
SEEDS = range(12)


class Constant(Rule):
    """The same K as a rule that is asked every step."""

    def __init__(self, k: int, each: bool) -> None:
        self.k, self.each = k, each

    def choose(self, load: Load) -> Choice:
        return Choice(np.full(len(load.rows), self.k) if self.each else self.k)


class Dice(Rule):
    """Another K for every request and step, by position; checks what it is told."""

    def __init__(self, most: int) -> None:
        self.most, self.drafted, self.accepted = most, 0, 0

    def observe(self, outcome) -> None:
        assert len(outcome.rows) == len(outcome.drafts) == len(outcome.accepted)
        assert (outcome.accepted <= outcome.drafts).all()
        assert (outcome.drafts <= self.most).all()
        self.drafted += int(outcome.drafts.sum())
        self.accepted += int(outcome.accepted.sum())

    def choose(self, load: Load) -> Choice:
        assert len(np.unique(load.rows)) == len(load.rows)
        return Choice(load.cursor * 7 % (self.most + 1))


def serve(seed: int, rule: Rule, overlapped: bool = False, leap: bool = False, switching=NO_SWITCHING):
    w, limits = h.workload(seed), h.config(seed)
    env, recorder, price = simpy.Environment(), Recorder(Ledger(w.table)), h.LinearCost()
    bound = BoundCost(price, price, HostOverhead(0.0, 0.0), 0.0, "test", 0.0)
    parts = (limits, w.table, w.tape(0.6), rule, switching.drafter_stops)
    if overlapped:
        scheduler = OverlappedScheduler(*parts)
        server = OverlappedServer(env, scheduler, bound, h.PerDraft(100_000), recorder, switching=switching)
    else:
        scheduler = Scheduler(*parts)
        server = Server(env, scheduler, bound, h.PerDraft(100_000), recorder, leap, switching)

    def arrivals():
        for row in range(len(w.table)):
            if w.table.arrival_ns[row] > env.now:
                yield env.timeout(int(w.table.arrival_ns[row]) - int(env.now))
            server.post(row)

    env.process(arrivals())
    env.run()
    scheduler.check()
    assert scheduler.idle
    assert scheduler.pool.free == limits.num_blocks
    return assemble(recorder.ledger, [(recorder, scheduler)])


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rule_that_always_says_k_is_fixed_k(seed: int, overlapped: bool) -> None:
    fixed = h.digest(serve(seed, TableRule.fixed(3), overlapped))
    assert h.digest(serve(seed, Constant(3, each=False), overlapped)) == fixed
    speculates = h.workload(seed).table.speculate.all()
    if speculates:  # else the drafter's work is counted for those that draft only
        assert h.digest(serve(seed, Constant(3, each=True), overlapped)) == fixed


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_text_of_a_request_does_not_depend_on_the_rule(seed: int, overlapped: bool) -> None:
    rule = Dice(4)
    run, plain = serve(seed, rule, overlapped), serve(seed, TableRule.fixed(0), overlapped)
    assert (run.requests.emitted_tokens == plain.requests.emitted_tokens).all()
    assert (run.accepted <= run.drafted).all()
    assert run.drafted.max() <= 4
    assert run.steps.draft_tokens.sum() >= run.drafted.sum()  # places of requests found out to be done are wasted
    if not overlapped:
        assert run.steps.draft_tokens.sum() == run.drafted.sum()
        speculating = np.repeat(h.workload(seed).table.speculate, run.requests.output_tokens)
        assert rule.drafted == run.drafted[speculating].sum()
        assert rule.accepted == run.accepted[speculating].sum()
    assert h.digest(serve(seed, Dice(4), overlapped)) == h.digest(run)


@pytest.mark.parametrize("seed", SEEDS)
def test_k_0_is_plain_but_for_the_drafter(seed: int) -> None:
    off = serve(seed, Constant(0, each=True))
    plain = h.serve(h.workload(seed), h.config(seed), k=0, alpha=0.6, drafter=h.PerDraft(100_000))
    assert h.digest(off) == h.digest(plain)


@pytest.mark.parametrize("leap", [False, True])
def test_every_change_of_k_takes_its_time(leap: bool) -> None:
    """A roomy server, K by batch size: the run's host time is the switches."""
    table = TableRule((1, 3, 6), (4, 1, 2))
    run = serve(31, table, leap=leap, switching=Switching(switch_s=1e-4))
    changes = np.count_nonzero(np.diff(run.steps.num_draft_tokens))
    assert changes > 3
    assert run.steps.host_ns.sum() == 100_000 * changes


@pytest.mark.parametrize("leap", [False, True])
def test_slowdown_without_full_cuda_graphs(leap: bool) -> None:
    """Only passes without prefill, and only as long as memory bounds them (as the stub price says)."""
    run = serve(31, TableRule.fixed(2), leap=leap, switching=Switching(cudagraph_slowdown=0.25))
    fast = serve(31, TableRule.fixed(2), leap=leap)
    cost = h.LinearCost()
    assert run.requests.finish_ns.max() > fast.requests.finish_ns.max()
    decoding = (run.steps.prefill_tokens == 0) & (run.steps.num_tokens == run.steps.num_seqs + run.steps.draft_tokens)
    base = cost.step_ns + cost.token_ns * run.steps.num_tokens
    assert (run.steps.target_ns[decoding] >= 1.25 * base[decoding] - 1).all()
    assert np.isclose(run.steps.op_seconds.sum(axis=1) * 1e9, run.steps.target_ns, atol=1).all()


class OffBetween(Rule):
    """K = 2, but 0 for the choices first..last-1."""

    def __init__(self, first: int, last: int) -> None:
        self.asked, self.off = 0, range(first, last)

    def choose(self, load: Load) -> Choice:
        self.asked += 1
        return Choice(0 if self.asked - 1 in self.off else 2)


class Witness:
    """A drafter that takes no time and remembers its work."""

    def __init__(self) -> None:
        self.works = []

    def draft_seconds(self, work) -> float:
        self.works.append(work)
        return 0.0


@pytest.mark.parametrize("stops", [False, True])
def test_a_drafter_that_stops_catches_up_on_what_it_missed(stops: bool) -> None:
    """One request: off after steps 4 to 8, on again after step 9, without what was computed in steps 4 to 8."""
    one, drafter, price = np.ones(1, np.int64), Witness(), h.LinearCost()
    table = h.RequestTable(0 * one, 30 * one, 60 * one, 0 * one, one > 0)
    tape = h.Tape(np.tile(np.array([0, 2, 1], np.uint8), 20))
    env, recorder = simpy.Environment(), Recorder(Ledger(table))
    bound = BoundCost(price, price, HostOverhead(0.0, 0.0), 0.0, "test", 0.0)
    scheduler = Scheduler(h.ROOMY, table, tape, OffBetween(4, 9), stops)
    server = Server(env, scheduler, bound, drafter, recorder, switching=Switching(drafter_stops=stops))
    server.post(0)
    env.run()
    run = assemble(recorder.ledger, [(recorder, scheduler)])
    emitted, works = run.steps.emitted_tokens, drafter.works
    assert len(works) == len(emitted) - (5 if stops else 0)
    caught_up = [work.catch_up for work in works if work.catch_up.num_tokens]
    if not stops:
        assert caught_up == []
        return
    (load,) = caught_up
    seen = 30 + int(emitted[:4].sum()) - 1
    missed = int(emitted[4:9].sum())
    pairs = sum(seen + i + 1 for i in range(missed))
    assert load == (1, missed, seen + missed, pairs)
    assert works.index(next(work for work in works if work.catch_up == load)) == 4


def test_drafter_passes_narrow_down_to_the_requests_still_drafting() -> None:
    """Three requests that draft 3, 1 and 0 tokens: passes 2 and 3 have one sequence; equal drafts need no list."""

    class Fixed(Rule):
        def choose(self, load: Load) -> Choice:
            return Choice(np.array([3, 1, 0])[load.rows])

    zeros, ones = np.zeros(3, np.int64), np.ones(3, np.int64)
    table = h.RequestTable(zeros, 10 * ones, 20 * ones, zeros, ones > 0)
    scheduler = Scheduler(h.ROOMY, table, h.Tape(np.zeros(60, np.uint8)), Fixed())
    for row in range(3):
        scheduler.add(row)
    work = scheduler.schedule().work
    assert (work.num_seqs, work.kv_tokens, work.num_draft_tokens) == (2, 20, 3)
    assert work.narrowing == ((1, 11), (1, 12))
    scheduler = Scheduler(h.ROOMY, table, h.Tape(np.zeros(60, np.uint8)), Constant(2, each=True))
    scheduler.add(0)
    assert scheduler.schedule().work.narrowing == ()
