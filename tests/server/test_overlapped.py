"""Asynchronous scheduling: same work, one step of foresight missing."""

import dataclasses

import numpy as np
import pytest
import simpy

from sim.acceptance.base import Tape
from sim.cost.base import BoundCost, ForwardPass, HostOverhead, PassPrice
from sim.draft_length.base import TableRule
from sim.metrics.record import RunRecord, Status
from sim.scheduler.overlapped import OverlappedScheduler
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.schedule import Scheduler
from sim.server.assemble import assemble
from sim.server.overlapped import OverlappedServer
from sim.server.recorder import Ledger, Recorder
from sim.server.server import Server
from sim.speculation.plain import NoDrafter
from sim.workload.requests import RequestTable

ROOMY = SchedulerConfig(16, 4096, 4096, 16, 10_000)


class TenMilliseconds:
    def price(self, forward: ForwardPass) -> PassPrice:
        return PassPrice(0.01, 0.01, 0.0, 0.0, 0.0, 0.0, True)


def table(seed: int, n: int) -> RequestTable:
    rng = np.random.Generator(np.random.Philox(seed))
    return RequestTable(
        np.cumsum(rng.integers(0, 40_000_000, n)),
        rng.integers(1, 200, n),
        rng.integers(1, 60, n),
        np.zeros(n, np.int64),
        np.ones(n, np.bool_),
    )


def run(
    requests: RequestTable,
    k: int,
    overlapped: bool,
    config: SchedulerConfig = ROOMY,
    host_s: float = 0.0,
    tape: np.ndarray | None = None,
) -> tuple[RunRecord, Scheduler]:
    rng = np.random.Generator(np.random.Philox(99))
    drawn = rng.integers(0, k + 1, requests.num_positions).astype(np.uint8)
    config = dataclasses.replace(config, lookahead_tokens=k)
    env, recorder, pass_cost = simpy.Environment(), Recorder(Ledger(requests)), TenMilliseconds()
    cost = BoundCost(pass_cost, pass_cost, HostOverhead(host_s, 0.0), 0.0, "test", 0.0)
    if overlapped:
        ahead = OverlappedScheduler(config, requests, Tape(drawn if tape is None else tape), TableRule.fixed(k))
        scheduler: Scheduler = ahead
        server: Server = OverlappedServer(env, ahead, cost, NoDrafter(), recorder)
    else:
        scheduler = Scheduler(config, requests, Tape(drawn if tape is None else tape), TableRule.fixed(k))
        server = Server(env, scheduler, cost, NoDrafter(), recorder)

    def arrive():  # type: ignore[no-untyped-def]
        for row, at in enumerate(requests.arrival_ns.tolist()):
            yield env.timeout(at - env.now)
            server.submit(row)

    env.process(arrive())
    env.run()
    scheduler.check()
    return assemble(recorder.ledger, [(recorder, scheduler)]), scheduler


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("num_blocks", [10_000, 24])
def test_everyone_gets_all_tokens_and_all_blocks_come_back(k: int, num_blocks: int) -> None:
    requests = table(k, 80)
    record, scheduler = run(requests, k, True, dataclasses.replace(ROOMY, num_blocks=num_blocks))
    assert (record.requests.status == Status.FINISHED).all()
    assert record.steps.emitted_tokens.sum() == requests.num_positions
    assert scheduler.pool.free == num_blocks
    assert scheduler.idle
    assert (scheduler.num_preemptions.sum() > 0) == (num_blocks == 24)


@pytest.mark.parametrize("k", [0, 3])
def test_same_chunks_as_the_synchronous_server(k: int) -> None:
    requests = table(5, 60)
    ahead, _ = run(requests, k, True)
    in_step, _ = run(requests, k, False)
    for name in ("drafted", "accepted"):
        assert np.array_equal(getattr(ahead, name), getattr(in_step, name))
    assert np.array_equal(ahead.emission_step >= 0, in_step.emission_step >= 0)


def test_host_time_hides_behind_the_gpu() -> None:
    requests = table(6, 40)
    hidden, _ = run(requests, 0, True, host_s=0.008)
    stuck_out, _ = run(requests, 0, True, host_s=0.012)
    summed, _ = run(requests, 0, False, host_s=0.008)
    assert set(hidden.steps.duration_ns.tolist()) == {10_000_000}
    assert set(stuck_out.steps.duration_ns.tolist()) == {12_000_000}
    assert set(summed.steps.duration_ns.tolist()) == {18_000_000}


def test_a_request_sure_to_end_in_flight_is_not_scheduled_again() -> None:
    one = RequestTable(np.array([0]), np.array([10]), np.array([5]), np.array([0]), np.array([True]))
    ahead, _ = run(one, 0, True)
    in_step, _ = run(one, 0, False)
    assert ahead.steps.num_tokens.tolist() == in_step.steps.num_tokens.tolist() == [10, 1, 1, 1, 1]
    assert np.array_equal(ahead.requests.finish_ns, in_step.requests.finish_ns)


def test_a_request_that_ends_by_accepted_drafts_wastes_its_place_in_the_next_step() -> None:
    one = RequestTable(np.array([0]), np.array([10]), np.array([5]), np.array([0]), np.array([True]))
    all_accepted = np.full(5, 3, np.uint8)
    ahead, _ = run(one, 3, True, tape=all_accepted)
    in_step, _ = run(one, 3, False, tape=all_accepted)
    assert in_step.steps.num_tokens.tolist() == [10, 4]
    assert ahead.steps.num_tokens.tolist() == [10, 4, 4]
    assert ahead.steps.num_emitting.tolist() == [1, 1, 0]
    assert ahead.requests.finish_ns[0] == in_step.requests.finish_ns[0]
