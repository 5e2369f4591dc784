"""Whole workloads: the request table, its random numbers, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from sim.errors import ScenarioError
from sim.rng import Streams
from sim.workload.requests import RequestTable
from sim.workload.traces import load_file
from sim.workload.workload import Workload

COLUMNS = ("arrival_ns", "prompt_tokens", "output_tokens", "class_id", "speculate")
CLOSED = {"kind": "closed", "max_concurrency": 8}
POISSON = {"kind": "poisson", "request_rate": 4}
CLASSES = [
    {"name": "code", "share": 3, "output_tokens": {"kind": "uniform", "min": 500, "max": 600}},
    {"name": "chat", "share": 1, "speculate": False, "prompt_tokens": {"kind": "fixed", "value": 9}},
]
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 4},{100 + i},{200 + i}\n" for i in range(50))


def workload(**data: object) -> Workload:
    return Workload.model_validate(data)


def table(streams: Streams, base_dir: Path = Path(), **data: object) -> RequestTable:
    return workload(**data).requests(streams, base_dir)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TRACE)
    return tmp_path


CASES = [
    {"arrivals": CLOSED},
    {"arrivals": POISSON, "prompt_tokens": {"kind": "lognormal", "mean": 500, "cv": 1}},
    {"arrivals": {"kind": "gamma", "request_rate": 9, "burstiness": 0.3}, "classes": CLASSES},
    {"arrivals": {"kind": "trace", "rate_scale": 2}, "trace": "t.csv", "classes": CLASSES},
    {"arrivals": CLOSED, "trace": {"path": "t.csv", "start_s": 2}, "classes": CLASSES},
]


@pytest.mark.parametrize("data", CASES)
def test_same_seed_same_rows_and_more_rows_change_none(folder: Path, data: dict[str, object]) -> None:
    streams = Streams(4, 1)
    short, again, long = (
        table(streams, folder, num_requests=n, **data) for n in (20, 20, 45 if "trace" in data else 90)
    )
    for name in COLUMNS:
        assert (getattr(short, name) == getattr(again, name)).all()
        assert (getattr(short, name) == getattr(long, name)[:20]).all()
        assert len(getattr(short, name)) == 20


@pytest.mark.parametrize("data", CASES[1:3])
def test_replicates_and_seeds_differ(folder: Path, data: dict[str, object]) -> None:
    one, *others = (table(streams, folder, **data) for streams in (Streams(4, 0), Streams(4, 1), Streams(5, 0)))
    for other in others:
        assert (one.arrival_ns != other.arrival_ns).any()


def test_one_setting_does_not_move_the_draws_of_another() -> None:
    lengths = {"kind": "lognormal", "mean": 300, "cv": 1}
    plain = table(Streams(1), arrivals=POISSON, output_tokens=lengths, num_requests=500)
    classes = table(Streams(1), arrivals=CLOSED, output_tokens=lengths, classes=CLASSES, num_requests=500)
    chat = classes.class_id == 1
    assert (classes.output_tokens[chat] == plain.output_tokens[chat]).all()
    assert (classes.output_tokens[~chat] != plain.output_tokens[~chat]).any()


def test_defaults() -> None:
    requests = table(Streams(0), arrivals=CLOSED)
    assert len(requests) == 200
    assert set(requests.prompt_tokens) == {1024}
    assert set(requests.output_tokens) == {256}
    assert requests.class_names == ("default",)
    assert requests.speculate.all()
    assert not requests.arrival_ns.any()


def test_classes_have_their_shares_lengths_and_opt_out() -> None:
    requests = table(Streams(2), arrivals=POISSON, classes=CLASSES, num_requests=10_000)
    chat = requests.class_id == 1
    # share 1/4: standard error sqrt(0.25 * 0.75 / 10,000) = 0.0043
    assert chat.mean() == pytest.approx(0.25, abs=4 * 0.0043)
    assert requests.class_names == ("code", "chat")
    assert (requests.speculate == ~chat).all()
    assert set(requests.prompt_tokens[chat]) == {9}
    assert set(requests.prompt_tokens[~chat]) == {1024}
    assert set(requests.output_tokens[chat]) == {256}
    assert requests.output_tokens[~chat].min() >= 500


def test_replay_is_the_trace_itself(folder: Path) -> None:
    requests = table(Streams(3), folder, arrivals={"kind": "trace", "rate_scale": 2}, trace="t.csv")
    assert requests.prompt_tokens.tolist() == list(range(100, 150))
    assert requests.output_tokens.tolist() == list(range(200, 250))
    assert (requests.arrival_ns == np.arange(50) * 125_000_000).all()


def test_replay_of_the_shipped_trace_is_the_trace_itself() -> None:
    requests = table(Streams(3), arrivals={"kind": "trace"}, trace="azure2023-conv")
    trace = load_file(workload(arrivals=CLOSED, trace="azure2023-conv").load_trace(Path()).path)  # type: ignore[union-attr]
    assert (requests.arrival_ns == trace.arrival_ns).all()
    assert (requests.output_tokens == trace.output_tokens).all()


def test_closed_loop_cycles_through_the_trace_from_a_place_of_its_own(folder: Path) -> None:
    offsets = set()
    for replicate in range(8):
        requests = table(Streams(3, replicate), folder, arrivals=CLOSED, trace="t.csv", num_requests=120)
        assert (np.diff(requests.prompt_tokens) % 50 == 1).all()
        assert (requests.output_tokens - requests.prompt_tokens == 100).all()
        offsets.add(int(requests.prompt_tokens[0]))
    assert len(offsets) > 4


def test_replay_takes_no_row_twice(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"workload.num_requests: found 51; the trace window has 50 requests"):
        table(Streams(0), folder, arrivals={"kind": "trace"}, trace="t.csv", num_requests=51)


def test_facts(folder: Path) -> None:
    facts = workload(arrivals=CLOSED, trace={"path": "t.csv", "max_requests": 10}, classes=CLASSES).facts(folder)
    assert facts.num_requests == 200
    assert (facts.trace_rows, facts.trace_span_s) == (10, 2.25)
    assert facts.max_prompt_tokens == 109
    assert facts.max_output_tokens == 600
    assert facts.mean_prompt_tokens == pytest.approx(0.75 * 104.5 + 0.25 * 9)
    assert facts.mean_output_tokens == pytest.approx(0.75 * 550 + 0.25 * 204.5, rel=1e-3)
    none = workload(arrivals=POISSON).facts(folder)
    assert none == (2400, 1024, 256, 1024, 1024, 256, 0, 0.0)


@pytest.mark.parametrize("data", CASES)
def test_written_out_workloads_read_back_equal(data: dict[str, object]) -> None:
    spec = workload(**data)
    assert Workload.model_validate_json(spec.model_dump_json()) == spec
    assert Workload.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        ({"arrivals": {"kind": "trace"}}, ("arrivals",), "needs workload.trace"),
        ({"prompt_tokens": {"kind": "trace"}}, ("prompt_tokens",), "needs workload.trace"),
        ({"classes": [{**CLASSES[0], "output_tokens": {"kind": "trace"}}]}, ("classes",), "needs workload.trace"),
        ({"classes": [CLASSES[0], CLASSES[0]]}, ("classes",), "given twice: code"),
        ({"classes": [{"name": "a", "share": 0}]}, ("classes", 0, "share"), "greater than 0"),
        (
            {"arrivals": {"kind": "poisson", "request_rate": 0}},
            ("arrivals", "poisson", "request_rate"),
            "greater than 0",
        ),
        ({"arrivals": {"kind": "closed", "max_concurrency": -4}}, ("arrivals", "closed", "max_concurrency"), "than 0"),
        ({"arrivals": {"kind": "uniform"}}, ("arrivals",), "does not match any of the expected tags"),
        ({"num_requests": 0}, ("num_requests",), "greater than 0"),
        ({"num_requests": 2_000_000}, ("num_requests",), "less than or equal to 1000000"),
        ({"num_requests": 10, "warmup_requests": 6, "cooldown_requests": 4}, (), "leave none of 10"),
        ({"trace": {"path": ""}}, ("trace", "path"), "at least 1"),
        ({"trace": {"path": "t", "format": "parquet"}}, ("trace", "format"), "'azure'"),
        ({"rate": 4}, ("rate",), "not permitted"),
    ],
)
def test_contradictions_are_refused_at_their_place(
    data: dict[str, object], place: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValidationError, match=message) as error:
        workload(**{"arrivals": CLOSED, **data})
    assert place in [found["loc"] for found in error.value.errors()]
