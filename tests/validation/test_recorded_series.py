"""States by the second: the recorder's clock and what it notes, on made-up steps with known answers."""

import math
from pathlib import Path

import numpy as np
import pytest

from sim.calibration.tables import Table, read_table
from sim.metrics.record import RunRecord
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.validation.as_published import overlaps
from sim.validation.recorded_series import SECONDS, compare_series, find_clock, noted

RNG = np.random.default_rng(7)


def table(**columns: object) -> Table:
    return Table("made up", {name: np.array(values).astype(str) for name, values in columns.items()})


def recording(ahead_s: float, num: int = 60, idle_s: float = 0.0) -> tuple[Table, Table]:
    """Requests with random first tokens, and rows of a recorder whose clock is `ahead_s` ahead."""
    first = np.sort(RNG.uniform(0.2, 20.0, num))
    first[num // 2 :] += idle_s
    prompts = RNG.integers(10, 4000, num)
    last = first + RNG.uniform(0.5, 9.0, num)
    moments = np.concatenate((np.arange(0.1, 12.0, 0.1), first, last)) + ahead_s
    rows = np.unique(np.floor(moments)) + 1.0
    counted = [float(prompts[np.floor(first + ahead_s) + 1.0 == end].sum()) for end in rows]
    requests = table(first_token_s=first, last_token_s=last, input_tokens=prompts)
    states = {name: np.zeros(len(rows)) for name in SECONDS[1:]}
    return requests, table(t=rows, prompt_throughput=counted, **states)


@pytest.mark.parametrize("ahead_s", [0.0, 0.127, 0.93, 4.5, 61.2])
@pytest.mark.parametrize("idle_s", [0.0, 7.3])
def test_the_clock_is_found_from_prompt_tokens(ahead_s, idle_s):
    requests, seconds = recording(ahead_s, idle_s=idle_s)
    clock = find_clock(seconds, requests)
    assert clock.agree == 1.0
    assert clock.ahead_s == pytest.approx(ahead_s, abs=0.05)


def test_a_clock_that_fits_badly_says_so():
    requests, seconds = recording(0.4)
    wrong = seconds.columns["prompt_throughput"].copy()
    wrong[2:8] = "123.0"
    clock = find_clock(Table("made up", seconds.columns | {"prompt_throughput": wrong}), requests)
    assert clock.agree == pytest.approx(1 - 6 / len(seconds))


def test_without_counts_the_clocks_are_taken_as_one():
    requests, seconds = recording(0.4)
    clock = find_clock(Table("made up", {name: seconds.columns[name] for name in SECONDS}), requests)
    assert clock.ahead_s == 0.0
    assert math.isnan(clock.agree)


def served(blocks: int = 1000, *, overlapped: bool = False) -> RunRecord:
    """Ten requests through a server that runs four; 10 ms a step."""
    mapping = {
        "hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}},
        "cost_model": {"kind": "constant", "target_ms": 10},
        "engine": {
            "max_num_seqs": 4, "num_gpu_blocks_override": blocks, "async_scheduling": overlapped, "max_model_len": 400,
        },
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": 10}, "num_requests": 10,
            "prompt_tokens": {"kind": "fixed", "value": 100}, "output_tokens": {"kind": "uniform", "min": 3, "max": 60},
        },
    }  # fmt: skip
    return simulate(load_mapping(mapping).scenario, "plain", 0, Path())


@pytest.fixture(scope="module")
def runs() -> dict[bool, RunRecord]:
    return {overlapped: served(overlapped=overlapped) for overlapped in (False, True)}


@pytest.mark.parametrize("overlapped", [False, True])
def test_ended_requests_are_noted_as_gone(runs, overlapped):
    """After each step those that it ended do not run; those of the step scheduled meanwhile do."""
    record = runs[overlapped]
    ends = (record.steps.start_ns + record.steps.duration_ns) * 1e-9
    running, waiting = (noted(record, what, ends + 1e-6, overlaps=overlapped) for what in ("running", "waiting"))
    left = np.array([(record.requests.finish_ns * 1e-9 > end).sum() for end in ends])
    begun = np.searchsorted(np.sort(record.requests.first_scheduled_ns * 1e-9), ends + (1e-6 if overlapped else -1e-6))
    assert running.tolist() == (begun - (10 - left)).tolist()
    assert waiting.tolist() == (10 - begun).tolist()
    assert running[-1] == waiting[-1] == 0
    assert running.max() == 4


def test_nothing_is_noted_before_the_first_step_ends(runs):
    record = runs[False]
    first = float(record.steps.start_ns[0] + record.steps.duration_ns[0]) * 1e-9
    assert noted(record, "running", np.array([0.0, first]), overlaps=False).tolist() == [0.0, 0.0]


def test_a_replay_of_itself_has_no_error(runs):
    record = runs[True]
    at = np.arange(0.005, 0.3, 0.01)
    states = {what: noted(record, what, at, overlaps=True) for what in ("running", "waiting", "KV use")}
    seconds = table(t=at + 0.25, running=states["running"], waiting=states["waiting"], kv_cache_pct=states["KV use"])
    clock = find_clock(seconds, table(first_token_s=[0.1], last_token_s=[0.2], input_tokens=[1]))
    found = compare_series("itself", seconds, clock._replace(ahead_s=0.25), record, record, overlaps=True)
    assert [(one.what, round(one.rms, 9)) for one in found] == [("running", 0), ("waiting", 0), ("KV use", 0)]


@pytest.mark.parametrize("overlapped", [False, True])
def test_preempted_requests_wait(overlapped):
    """KV for three of the four: what runs and what waits still add up to those that have not ended."""
    record = served(blocks=30, overlapped=overlapped)
    assert record.requests.num_preemptions.sum() > 2
    at = (record.steps.start_ns + record.steps.duration_ns) * 1e-9 + 1e-6
    running, waiting = (noted(record, what, at, overlaps=overlapped) for what in ("running", "waiting"))
    left = np.array([(record.requests.finish_ns * 1e-9 >= end).sum() for end in at])
    assert (running + waiting).tolist() == left.tolist()


def test_replicas_add_up():
    """Each holds its own share; together they hold every request that has not ended."""
    mapping = {
        "hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}}, "replicas": 3,
        "router": {"kind": "shortest_queue"}, "cost_model": {"kind": "constant", "target_ms": 10},
        "engine": {"max_num_seqs": 2, "num_gpu_blocks_override": 100, "max_model_len": 400},
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": 12}, "num_requests": 12,
            "prompt_tokens": {"kind": "fixed", "value": 64}, "output_tokens": {"kind": "uniform", "min": 3, "max": 60},
        },
    }  # fmt: skip
    record = simulate(load_mapping(mapping).scenario, "plain", 0, Path())
    at = np.unique(record.steps.start_ns + record.steps.duration_ns) * 1e-9 + 1e-6
    running, waiting, used = (noted(record, what, at, overlaps=False) for what in ("running", "waiting", "KV use"))
    left = np.array([(record.requests.finish_ns * 1e-9 >= end).sum() for end in at])
    assert (running + waiting).tolist() == left.tolist()
    assert running.max() == 6
    assert 0 < used.max() <= 100 * 6 * 8 / 300


@pytest.mark.parametrize(
    ("name", "found"), [("vllm 0.13.0", False), ("vllm 0.14.1", True), ("vllm 0.19.0", True), ("vllm ", True)]
)
def test_vllm_overlaps_by_default_since_0_14(name, found):
    assert overlaps(name) is found


@pytest.mark.parametrize(("run", "ahead_s"), [("rtx4090", 0.127), ("rtxpro6000", 0.080)])
def test_clocks_of_the_recorded_runs(shared_data, run, ahead_s):
    """Every one of the 184 and 67 rows counts exactly the prompts of the requests, within a range of 30 ms."""
    folder = shared_data / "recorded_vllm"
    needed = ("first_token_s", "last_token_s", "input_tokens")
    clock = find_clock(
        read_table(folder / f"{run}_llama-3.1-8b_seconds.csv", SECONDS),
        read_table(folder / f"{run}_llama-3.1-8b_requests.csv", needed),
    )
    assert clock.agree == 1.0
    assert clock.ahead_s == pytest.approx(ahead_s, abs=0.015)
