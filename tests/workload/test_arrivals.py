"""Arrival processes: their laws, and how they drive a server in simulated time."""

import time
from pathlib import Path

import numpy as np
import pytest
import simpy
from scipy import stats

from sim.errors import ScenarioError
from sim.rng import Streams
from sim.workload.arrivals.base import ArrivalProcess
from sim.workload.arrivals.closed import ClosedLoop
from sim.workload.arrivals.gamma import Gamma
from sim.workload.arrivals.poisson import Poisson
from sim.workload.arrivals.trace import TraceReplay
from sim.workload.requests import RequestTable, Sessions
from sim.workload.traces import load_file

STREAMS = Streams(11, 2)


class FakeServer:
    """Takes `service_ns` for every request, however many are in flight; logs what it is given."""

    def __init__(self, env: simpy.Environment, service_ns: np.ndarray) -> None:
        self.env, self.service_ns = env, service_ns.tolist()
        self.submitted: list[tuple[int, int]] = []
        self.in_flight: list[tuple[int, int]] = []
        self.now_serving = 0

    def submit(self, row: int) -> simpy.Event:
        self.submitted.append((row, self.env.now))
        self._count(+1)
        done = self.env.timeout(self.service_ns[row])
        done.callbacks.append(lambda _: self._count(-1))
        return done

    def _count(self, change: int) -> None:
        self.now_serving += change
        self.in_flight.append((self.env.now, self.now_serving))


def table(arrival_ns: np.ndarray, sessions: Sessions | None = None) -> RequestTable:
    ones = np.ones(len(arrival_ns), np.int64)
    return RequestTable(arrival_ns, ones, ones, 0 * ones, ones > 0, sessions=sessions)


def drive(process: ArrivalProcess, arrival_ns: np.ndarray, service_ns: np.ndarray) -> FakeServer:
    env = simpy.Environment()
    server = FakeServer(env, service_ns)
    env.process(process.drive(env, table(arrival_ns), server.submit))
    env.run()
    return server


def test_poisson_gaps_are_exponential() -> None:
    times = Poisson(request_rate=5).arrival_ns(10_000, STREAMS)
    gaps = np.diff(times, prepend=0) / 1e9
    # mean and CV of 10,000 exponentials: standard errors 1 % each; 4 of them allowed
    assert gaps.mean() == pytest.approx(0.2, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.04)
    assert stats.kstest(gaps, stats.expon(scale=0.2).cdf).pvalue > 0.001


@pytest.mark.parametrize("burstiness", [0.1, 0.5, 1.0, 4.0, 100.0])
def test_gamma_gaps_have_vllms_burstiness(burstiness: float) -> None:
    times = Gamma(request_rate=5, burstiness=burstiness).arrival_ns(20_000, STREAMS)
    gaps = np.diff(times, prepend=0) / 1e9
    cv = burstiness**-0.5
    error = cv / 20_000**0.5
    assert gaps.mean() == pytest.approx(0.2, rel=4 * error)
    # relative standard error of a gamma's CV is about sqrt((1 + 3 / shape) / 2n)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=4 * ((1 + 3 / burstiness) / 40_000) ** 0.5)
    # below 1 us the rounding to nanoseconds shows (12 % of the gaps of shape 0.1 round to 0)
    law = stats.gamma(burstiness, scale=0.2 / burstiness)
    rank, gaps = np.arange(1, 20_001), np.sort(gaps)
    distance = np.abs(rank / 20_000 - law.cdf(gaps))[gaps > 1e-6].max()
    assert stats.kstwo(20_000).sf(distance) > 0.001


def test_gamma_with_burstiness_1_is_poisson() -> None:
    gamma, poisson = Gamma(request_rate=3, burstiness=1), Poisson(request_rate=3)
    assert (gamma.arrival_ns(500, STREAMS) == poisson.arrival_ns(500, STREAMS)).all()


def test_rate_scales_time_exactly() -> None:
    slow, fast = (Poisson(request_rate=rate).arrival_ns(500, STREAMS) for rate in (1, 2))
    assert np.abs(slow - 2 * fast).max() <= 500  # each gap is rounded once, by at most half a nanosecond


def test_arrivals_that_never_end_are_refused() -> None:
    with pytest.raises(ScenarioError, match="would take"):
        Poisson(request_rate=1e-6).arrival_ns(2000, STREAMS)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 4.0])
def test_trace_replay_divides_the_times_exactly(scale: float) -> None:
    trace_ns = np.arange(0, 4_000_000_000, 4_000_004, dtype=np.int64)
    times = TraceReplay(rate_scale=scale).arrival_ns(len(trace_ns), STREAMS, trace_ns)
    assert (times * int(4 * scale) == trace_ns * 4).all()


def test_trace_replay_repeats_nothing() -> None:
    with pytest.raises(ScenarioError, match="has 5 requests"):
        TraceReplay().arrival_ns(6, STREAMS, np.arange(5))


def test_shifted_trace_shifts_all_arrivals(tmp_path: Path) -> None:
    times = np.round(np.cumsum(exponential := STREAMS.per_row("t", 200)), 3)
    assert len(exponential) == 200
    arrivals = []
    for shift in (0.0, 12.5):
        path = tmp_path / f"{shift}.csv"
        rows = "\n".join(f"{t + shift:.3f},10,20" for t in times.tolist())
        path.write_text(f"arrival_s,input_tokens,output_tokens\n{rows}\n")
        trace_ns = load_file(path).arrival_ns
        arrivals.append(
            drive(TraceReplay(), TraceReplay().arrival_ns(200, STREAMS, trace_ns), np.full(200, 7)).submitted
        )
    assert [(row, now + 12_500_000_000) for row, now in arrivals[0]] == arrivals[1]


@pytest.mark.parametrize("process", [Poisson(request_rate=100), Gamma(request_rate=100, burstiness=0.1)])
def test_open_loop_submits_every_row_at_its_time(process: ArrivalProcess) -> None:
    arrival_ns = process.arrival_ns(300, STREAMS)
    server = drive(process, arrival_ns, np.full(300, 10**12))
    assert server.submitted == list(enumerate(arrival_ns.tolist()))


def test_simultaneous_arrivals_cost_one_event() -> None:
    env = simpy.Environment()
    server = FakeServer(env, np.full(50, 1))
    steps = sum(1 for _ in TraceReplay().drive(env, table(np.full(50, 5)), server.submit))
    assert steps >= 1
    assert drive(TraceReplay(), np.full(50, 5), np.full(50, 1)).submitted == [(row, 5) for row in range(50)]


@pytest.mark.parametrize("users", [1, 3, 16])
def test_closed_loop_keeps_the_concurrency(users: int) -> None:
    process = ClosedLoop(max_concurrency=users)
    service_ns = 1 + (1000 * STREAMS.per_row("service", 200)).astype(np.int64)
    server = drive(process, process.arrival_ns(200, STREAMS), service_ns)
    assert [row for row, _ in server.submitted] == list(range(200))
    settled = dict(server.in_flight)  # the last count at each time: finishes and the submissions they cause
    last_submission = server.submitted[-1][1]
    assert {count for now, count in settled.items() if now <= last_submission} == {users}
    assert settled[max(settled)] == 0


def test_more_users_than_requests() -> None:
    process = ClosedLoop(max_concurrency=100)
    assert len(drive(process, np.zeros(7, np.int64), np.full(7, 3)).submitted) == 7


def test_ramp_starts_users_one_after_another() -> None:
    process = ClosedLoop(max_concurrency=4, ramp_s=1.0)
    server = drive(process, np.zeros(4, np.int64), np.full(4, 5 * 10**9))
    assert [now for _, now in server.submitted] == [0, 250_000_000, 500_000_000, 750_000_000]


@pytest.mark.parametrize(
    ("users", "expected"), [(1, 200), (25, 200), (64, 512), (1000, 8000), (4000, 10_000), (8000, 16_000)]
)
def test_automatic_number_of_closed_loop_requests(users: int, expected: int) -> None:
    assert ClosedLoop(max_concurrency=users).automatic_num_requests(0) == expected


@pytest.mark.parametrize(("rate", "expected"), [(0.1, 2000), (10, 6000), (1000, 50_000)])
def test_automatic_number_of_open_loop_requests(rate: float, expected: int) -> None:
    assert Poisson(request_rate=rate).automatic_num_requests(0) == expected
    assert Gamma(request_rate=rate, burstiness=2).automatic_num_requests(0) == expected


def test_ten_thousand_arrivals_are_cheap() -> None:
    process = Poisson(request_rate=100)

    def cost() -> float:
        start = time.process_time()
        env = simpy.Environment()
        arrival_ns = process.arrival_ns(10_000, STREAMS)
        event = env.event()
        env.process(process.drive(env, table(arrival_ns), lambda row: event))
        env.run()
        return time.process_time() - start

    assert min(cost() for _ in range(3)) < 0.1
