"""Several servers behind a router: exact oracles on the very same arrivals, and laws."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import simpy

from sim.metrics.record import RunRecord, Status
from sim.metrics.summary import Measure, measure_run, summary_row
from sim.metrics.window import Loop
from sim.routing.base import ROUTERS
from sim.routing.least_outstanding import LeastOutstanding
from sim.routing.round_robin import RoundRobin
from sim.scenario import build
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario
from sim.server.router import Router

STEP_S = 0.01
ONE_TOKEN = {"kind": "fixed", "value": 1}
ONE_AT_A_TIME = {"max_num_seqs": 1, "max_num_batched_tokens": 64, "max_model_len": 64}
LOADS = {
    "closed": {"kind": "closed", "max_concurrency": 9},
    "poisson": {"kind": "poisson", "request_rate": 30},
    "sessions": {"kind": "sessions", "turns": {"kind": "fixed", "value": 3}, "session_rate": 6, "think_time": 0.2},
}


def queue(rate: float, replicas: int, router: str = "round_robin", output: object = ONE_TOKEN) -> Scenario:
    """`replicas` servers that take one request at a time, and 10 ms for each output token."""
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "constant", "target_ms": 1000 * STEP_S},
            "engine": ONE_AT_A_TIME,
            "replicas": replicas,
            "router": {"kind": router},
            "arms": {"plain": {}},
            "workload": {
                "arrivals": {"kind": "poisson", "request_rate": rate},
                "prompt_tokens": {"kind": "fixed", "value": 8},
                "output_tokens": output,
                "num_requests": 4000,
            },
        }
    ).scenario


def serving(load: str, replicas: int, router: str, **engine: object) -> Scenario:
    """Small answers with drafts, lengths that vary and a KV pool that sometimes runs dry."""
    arm = {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}}
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": {"max_model_len": 1400, "num_gpu_blocks_override": 100, **engine},
            "replicas": replicas,
            "router": {"kind": router},
            "arms": {"plain": {}, "eagle3": {**arm, "acceptance": {"kind": "iid", "rate": 0.7}}},
            "workload": {
                "arrivals": LOADS[load],
                "prompt_tokens": {"kind": "lognormal", "mean": 150, "cv": 1.0, "min": 1, "max": 600},
                "output_tokens": {"kind": "lognormal", "mean": 60, "cv": 0.8, "min": 1, "max": 300},
                "num_requests": 120,
            },
        }
    ).scenario


def waits_s(record: RunRecord) -> np.ndarray:
    return (record.requests.first_scheduled_ns - record.requests.arrival_ns) * 1e-9


def lindley(arrival_ns: np.ndarray, service_ns: int) -> np.ndarray:
    """Waiting times in one queue: W' = max(0, W + S - A)."""
    waits, wait = [], 0
    for gap in np.diff(arrival_ns, append=arrival_ns[-1]).tolist():
        waits.append(wait)
        wait = max(0, wait + service_ns - gap)
    return np.array(waits)


def assert_identical(one: RunRecord, other: RunRecord) -> None:
    for a, b in ((one, other), (one.requests, other.requests), (one.steps, other.steps)):
        for field in dataclasses.fields(a):
            if field.name not in ("requests", "steps"):
                assert np.array_equal(getattr(a, field.name), getattr(b, field.name)), field.name


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("router", ROUTERS.members())
def test_one_replica_behind_a_router_is_that_server(
    router: str, load: str, async_scheduling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = serving(load, 1, router, async_scheduling=async_scheduling)
    alone = simulate(scenario, "eagle3", 0, Path())
    real = build._Run.server

    class Routed:
        """The one server, with a router in front of it."""

        def __init__(self, run: build._Run, number: int) -> None:
            front = Router([real(run, number)], scenario.router, run._ledger.table)
            self.submit, self.post = front.submit, front.post

    monkeypatch.setattr(build._Run, "server", lambda run, number: Routed(run, number))
    assert_identical(alone, simulate(scenario, "eagle3", 0, Path()))


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_round_robin_splits_poisson_into_erlang_arrivals(rho: float) -> None:
    replicas = 3
    record = simulate(queue(replicas * rho / STEP_S, replicas), "plain", 0, Path())
    for replica in range(replicas):
        rows = np.arange(len(record.requests.arrival_ns)) % replicas == replica
        assert np.array_equal(record.requests.replica == replica, rows)
        expected = lindley(record.requests.arrival_ns[rows], round(STEP_S * 1e9))
        assert np.array_equal((record.requests.first_scheduled_ns - record.requests.arrival_ns)[rows], expected)


def test_least_outstanding_waits_less_than_round_robin_and_that_less_than_random_splitting() -> None:
    rho, replicas = 0.8, 4
    scenario = queue(replicas * rho / (5 * STEP_S), replicas, output={"kind": "uniform", "min": 1, "max": 9})
    mean = {}
    for router in ("round_robin", "least_outstanding", "shortest_queue"):
        spread = scenario.model_copy(update={"router": ROUTERS.members()[router]()})
        mean[router] = np.mean([waits_s(simulate(spread, "plain", r, Path())).mean() for r in range(1)])
    second_moment = np.mean(np.arange(1, 10) ** 2) * STEP_S**2
    # Each of randomly split replicas is an M/G/1 queue (Pollaczek-Khinchine).
    random_splitting = rho / (5 * STEP_S) * second_moment / (2 * (1 - rho))
    # Kingman with Erlang-4 arrivals: (1/4 + 4/15) / (1 + 4/15) = 0.41, from above.
    assert mean["round_robin"] < 0.5 * random_splitting
    assert mean["least_outstanding"] < 0.9 * mean["round_robin"]
    assert mean["shortest_queue"] < 0.9 * mean["round_robin"]


def test_with_equal_service_times_turns_are_already_the_fewest() -> None:
    turns, fewest = (queue(320, 4, router) for router in ("round_robin", "least_outstanding"))
    assert_identical(simulate(turns, "plain", 0, Path()), simulate(fewest, "plain", 0, Path()))


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("router", ROUTERS.members())
def test_every_request_is_served_once_by_the_replica_it_was_sent_to(
    router: str, load: str, async_scheduling: bool
) -> None:
    scenario = serving(load, 3, router, async_scheduling=async_scheduling)
    record = simulate(scenario, "eagle3", 0, Path())
    assert_identical(record, simulate(scenario, "eagle3", 0, Path()))
    rows, steps = record.requests, record.steps
    ended = np.isin(rows.status, (Status.FINISHED, Status.REJECTED, Status.UNSENT))
    assert ended.all()
    assert set(rows.replica.tolist()) == {0, 1, 2}
    done = rows.status == Status.FINISHED
    assert np.array_equal(rows.emitted_tokens[done], rows.output_tokens[done])
    assert steps.emitted_tokens.sum() == rows.emitted_tokens.sum()
    assert (np.diff(steps.start_ns) >= 0).all()
    served = np.repeat(rows.replica, rows.output_tokens)
    emitting = record.emission_step >= 0
    assert np.array_equal(steps.replica[record.emission_step[emitting]], served[emitting])
    for replica in range(3):
        mine = steps.replica == replica
        end = steps.start_ns[mine] + steps.duration_ns[mine]
        assert (steps.start_ns[mine][1:] >= end[:-1]).all()  # a server takes one step at a time
        assert steps.kv_blocks_used[mine].max() <= record.num_kv_blocks // 3


@pytest.mark.parametrize("load", ["poisson", "closed"])
@pytest.mark.parametrize("router", ROUTERS.members())
def test_leaping_changes_nothing_behind_a_router(router: str, load: str) -> None:
    scenario = serving(load, 3, router)
    for arm in ("plain", "eagle3"):
        assert_identical(simulate(scenario, arm, 0, Path()), simulate(scenario, arm, 0, Path(), leap=False))


def test_affinity_keeps_conversations_where_their_cache_is() -> None:
    found = {}
    for router in ("round_robin", "prefix_affinity"):
        scenario = serving("sessions", 3, router, enable_prefix_caching=True, num_gpu_blocks_override=400)
        found[router] = simulate(scenario, "plain", 0, Path()).requests
    shared = found["round_robin"].shared_tokens.sum()
    assert found["prefix_affinity"].cached_tokens.sum() > 0.8 * shared
    assert found["round_robin"].cached_tokens.sum() < 0.5 * shared


def test_metrics_of_a_fleet_add_up() -> None:
    scenario = serving("poisson", 3, "round_robin")
    record = simulate(scenario, "plain", 0, Path())
    run = measure_run(record, Measure(Loop(None), num_gpus=3, usd_per_gpu_hour=2.0))
    row = summary_row(run)
    # The same averages by brute force, on a fine grid of time.
    start, end = run.window.start_ns, run.window.end_ns
    grid = np.linspace(start, end, 200_001)[1:-1]
    running, blocks, busy = np.zeros(len(grid)), np.zeros(len(grid)), np.zeros(len(grid))
    steps = record.steps
    for replica in range(3):
        mine = np.flatnonzero(steps.replica == replica)
        last = np.searchsorted(steps.start_ns[mine], grid, side="right") - 1
        inside = (last >= 0) & (steps.start_ns[mine] + steps.duration_ns[mine] > 0)[np.maximum(last, 0)]
        inside &= grid < (steps.start_ns[mine] + steps.duration_ns[mine])[np.maximum(last, 0)]
        running += np.where(inside, steps.running[mine][last], 0)
        blocks += np.where(inside, steps.kv_blocks_used[mine][last], 0)
        busy += inside / 3
    assert row["mean_running"] == pytest.approx(running.mean(), rel=1e-3)
    assert row["p99_running"] == pytest.approx(np.percentile(running, 99, method="inverted_cdf"), abs=1)
    assert row["kv_usage_mean"] == pytest.approx(blocks.mean() / 300, rel=1e-3)
    assert row["kv_usage_p99"] == pytest.approx(np.percentile(blocks, 99, method="inverted_cdf") / 300, abs=0.01)
    assert row["busy_frac"] == pytest.approx(busy.mean(), rel=1e-3)
    assert row["output_tok_s_gpu"] == pytest.approx(row["output_throughput"] / 3)
    assert row["usd_per_mtok_output"] == pytest.approx(3 * 2.0 / 3600 / row["output_throughput"] * 1e6)


def test_router_of_two_servers_prefers_the_idle_one() -> None:
    env = simpy.Environment()

    class Stub:
        num_waiting = 0

        def __init__(self) -> None:
            self.rows: list[int] = []

        def submit(self, row: int) -> simpy.Event:
            self.rows.append(row)
            return env.event()

    slow, fast = Stub(), Stub()
    router = Router([slow, fast], LeastOutstanding(), None)
    first = router.submit(0)
    second = router.submit(1)
    assert (slow.rows, fast.rows) == ([0], [1])
    second.succeed()
    env.run()
    router.post(2)
    assert fast.rows == [1, 2]
    first.succeed()
    env.run()
    router.post(3)
    assert slow.rows == [0, 3]


def test_round_robin_posts_without_waiting_for_anybody() -> None:
    posted: list[tuple[int, int]] = []

    class Stub:
        def __init__(self, number: int) -> None:
            self.number = number

        def post(self, row: int) -> None:
            posted.append((self.number, row))

    router = Router([Stub(0), Stub(1)], RoundRobin(), None)
    for row in range(4):
        router.post(row)
    assert posted == [(0, 0), (1, 1), (0, 2), (1, 3)]
