"""Each tool's file gives the same point; whatever cannot be true or is missing is refused, all at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from sim.bench_results.base import Load, MeasuredPoint
from sim.bench_results.read import read_results
from sim.errors import ScenarioError

from .examples import VLLM, aiperf, guidellm


def write(folder: Path, document: Any, name: str = "bench.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def points(folder: Path, document: Any) -> list[MeasuredPoint]:
    path = write(folder, document)
    return read_results([path])[path]


def problems(folder: Path, document: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        points(folder, document)
    return str(error.value)


EXAMPLES = (VLLM, aiperf(), guidellm({"kind": "concurrent", "streams": 16}))


@pytest.mark.parametrize("document", EXAMPLES, ids=("vllm", "aiperf", "guidellm"))
def test_every_tool_tells_the_same_test(tmp_path, document):
    (point,) = points(tmp_path, document)
    assert (point.load, point.completed) == (Load(16), 100)
    assert (point.mean_prompt_tokens, point.mean_output_tokens) == (200.0, 50.0)
    shared = {"output_throughput": 1400.0, "mean_ttft_ms": 60.0, "median_ttft_ms": 50.0, "p99_ttft_ms": 90.0,
              "mean_tpot_ms": 10.0, "p99_tpot_ms": 12.0}  # fmt: skip
    assert {name: point.metrics[name] for name in shared} == pytest.approx(shared)


def test_gaps_of_chunks_and_acceptance_where_a_tool_has_them(tmp_path):
    (vllm,), (other,) = points(tmp_path, VLLM), points(tmp_path, aiperf())
    assert vllm.metrics["mean_itl_ms"] == other.metrics["mean_itl_ms"] == 25.0
    assert vllm.metrics["spec_decode_acceptance_length"] == 2.5
    (guide,) = points(tmp_path, guidellm({"type_": "concurrent", "streams": 16}))
    assert "mean_itl_ms" not in guide.metrics
    assert guide.metrics["mean_e2el_ms"] == pytest.approx(550.0)  # seconds in the file


def test_plain_servers_report_no_acceptance(tmp_path):
    (point,) = points(tmp_path, VLLM | {"spec_decode_num_drafts": 0, "spec_decode_acceptance_length": 0.0})
    assert "spec_decode_acceptance_length" not in point.metrics


@pytest.mark.parametrize(
    ("document", "load"),
    [
        (VLLM | {"max_concurrency": None}, Load(100)),
        (VLLM | {"max_concurrency": None, "request_rate": 28.0}, Load(None, 28.0)),
        (VLLM | {"max_concurrency": None, "request_rate": 28.0, "burstiness": 0.5}, Load(None, 28.0, 0.5)),
        (aiperf({"type": "poisson", "concurrency": None, "rate": 28.0}), Load(None, 28.0)),
        (aiperf({"type": "constant", "concurrency": None, "rate": 28.0}), Load(None, 28.0, 10_000.0)),
        (aiperf({"type": "gamma", "concurrency": None, "rate": 28.0, "smoothness": 2.0}), Load(None, 28.0, 2.0)),
        (aiperf() | {"input_config": {"loadgen": {"concurrency": 16}}}, Load(16)),
        (aiperf() | {"input_config": {"loadgen": {"request_rate": 28.0}}}, Load(None, 28.0)),
        (aiperf() | {"input_config": {"phases": {"profiling": {"concurrency": 16}}}}, Load(16)),
        (VLLM | {"max_concurrency": None, "max_concurrent_requests": 100}, Load(100)),
        (guidellm({"kind": "poisson", "rate": 28.0}), Load(None, 28.0)),
        (guidellm({"kind": "poisson", "rate": 28.0, "max_concurrency": 512}), Load(None, 28.0)),
        (guidellm({"type_": "constant", "rate": 28.0}), Load(None, 28.0, 10_000.0)),
    ],
)  # fmt: skip
def test_loads(tmp_path, document, load):
    assert [point.load for point in points(tmp_path, document)] == [load]


def test_json_lines_and_sweeps_hold_several_points(tmp_path):
    lines = "\n".join(json.dumps(VLLM | {"max_concurrency": users}) for users in (15, 16))
    found = points(tmp_path, lines)
    assert [point.load.max_concurrency for point in found] == [15, 16]
    assert found[1].source.endswith("bench.json:2")
    sweep = guidellm({"kind": "throughput"}, {"kind": "constant", "rate": 5.0}, {"kind": "concurrent", "streams": 16})
    assert [point.load for point in points(tmp_path, sweep)] == [Load(None, 5.0, 10_000.0), Load(16)]


SECONDS = {name: value / 1e3 for name, value in VLLM.items() if name.endswith("_ms")}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (VLLM | SECONDS, "0.0154 requests in flight, stated are 16: are times in another unit?"),
        (VLLM | {"mean_ttft_ms": 0.06, "median_ttft_ms": 0.05, "p99_ttft_ms": 0.09}, "another unit"),
        (VLLM | {"p99_tpot_ms": 1.0}, "p99_tpot_ms: 1 lies below the median, 9.9"),
        (VLLM | {"output_throughput": 140.0}, "output tokens / duration are 1400"),
        (VLLM | {"request_rate": 4.0}, "keeps a queue of its own"),
        (VLLM | {"ramp_up_strategy": "linear"}, "no operating point"),
        (VLLM | {"max_concurrency": None, "max_concurrent_requests": 16}, "at most 16 of 100 requests ran at a time"),
        (VLLM | {"completed": 0}, "completed: expected a whole number from 1 on, found 0"),
        (VLLM | {"mean_tpot_ms": True}, "expected a number from 0 on, found True"),
        (json.dumps(VLLM).replace("1400.0", "NaN"), "output_throughput: expected a number"),
        ({k: v for k, v in VLLM.items() if k != "max_concurrency"}, "max_concurrency: missing; the load"),
        ({k: v for k, v in VLLM.items() if not k.endswith("_ms")}, "no latencies"),
        (VLLM | {"mean_e2e_latency_ms": 550.0}, "SGLang"),
        (aiperf(time_to_first_token={"unit": "minutes", "avg": 1.0}), "time_to_first_token.unit: found 'minutes'"),
        (aiperf(was_cancelled=True), "interrupted"),
        (aiperf({"concurrency": None}), "neither a concurrency nor a rate"),
        (aiperf({"type": "user_centric", "concurrency": None, "rate": 2.0}), "found 'user_centric'"),
        (aiperf(input_config={"phases": []}), "0 profiling phases"),
        (aiperf({"type": "fixed_schedule"}), "input_config.phases.type: found 'fixed_schedule'"),
        (aiperf({"prefill_concurrency": 2}), "prefill_concurrency: the client holds requests back"),
        (aiperf({"concurrency_ramp": {"duration": 9}}), "concurrency_ramp: the client"),
        ({"request_latency": {"unit": "ms", "mean": 1.0, "ci_low": 0.9}}, "AIPerf (profile_export_aiperf.json)"),
        (guidellm({"type_": "poisson", "rate": 28.0, "max_concurrency": 16}), "15 requests in flight at a limit of 16"),
        (aiperf() | {"input_config": None}, "input_config: missing"),
        (guidellm(), "empty: nothing was measured"),
        (guidellm({"kind": "replay"}), "benchmarks.0.config.strategy.kind: found 'replay'"),
        (guidellm({"kind": "throughput"}), "holds no operating point"),
        ({"latency": 1}, "none of the files that are read: vllm bench serve (--save-result); AIPerf"),
        ("[1]", "expected an object"),
        ("{", "neither JSON nor JSON lines"),
    ],
)  # fmt: skip
def test_refused(tmp_path, document, said):
    assert said in problems(tmp_path, document)


def test_all_faults_of_all_files_come_at_once(tmp_path):
    first = write(tmp_path, VLLM | {"completed": -1, "duration": "4 s"}, "a.json")
    second = write(tmp_path, aiperf(request_count=None), "b.json")
    with pytest.raises(ScenarioError) as error:
        read_results([first, second, tmp_path / "none.json"])
    text = str(error.value)
    assert all(
        word in text for word in ("a.json:1: completed", "a.json:1: duration", "b.json:1: request_count", "none.json")
    )


def test_a_zero_is_left_out_and_said(tmp_path):
    (point,) = points(tmp_path, VLLM | {"mean_itl_ms": 0.0})
    assert "mean_itl_ms" not in point.metrics
    assert point.notes == ("mean_itl_ms is 0: nothing was measured, left out",)


def test_drafts_of_a_step_where_the_tool_counts_them(tmp_path):
    (point,), (other,) = points(tmp_path, VLLM), points(tmp_path, aiperf())
    assert (point.drafts_per_step, other.drafts_per_step) == (3.0, None)
    plain = {key: value for key, value in VLLM.items() if not key.startswith("spec_decode")}
    assert points(tmp_path, plain)[0].drafts_per_step == 0.0


def test_what_guidellm_leaves_out_is_said(tmp_path):
    document = guidellm({"type_": "concurrent", "streams": 16, "rampup_duration": 5})
    document["benchmarks"][0]["config"] |= {"warmup": {"percent": 0.1}, "cooldown": {"percent": None, "value": None}}
    document["benchmarks"][0]["metrics"]["request_totals"]["incomplete"] = 10
    (point,) = points(tmp_path, document)
    assert point.notes[1:] == (
        "GuideLLM leaves the warmup out, the simulated test does not",
        "users start over 5 s, simulated ones at once",
        "10 of 110 requests were cut off at the end and not measured: long ones are missing",
    )
