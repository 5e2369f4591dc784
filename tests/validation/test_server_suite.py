"""The suite `server` on made-up runs: replay, series, whole servers, what is listed."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sim.cli.validate import validate
from sim.errors import ScenarioError, SimError
from sim.scenario.load import load_mapping
from sim.validation.harness.waves import SIMULATED, WAVES, run_waves, wave_workload
from sim.validation.recorded_runs import recorded_runs
from sim.validation.server_points import run_points
from sim.validation.server_suite import render_server, run_server, server_suite_gates

ENGINE = {
    "gpu": "H100",
    "model": "Llama-3.1-8B",
    "max_num_seqs": 8,
    "max_num_batched_tokens": 2048,
    "vllm_version": "0.19.0",
}
POINTS = (
    "id,system,model,backend,backend_version,precision,isl,osl,concurrency,tp,moe_tp,moe_ep,attention_dp,"
    "ttft_ms,tpot_ms"
)


def record(folder: Path, tpot_ms: float = 7.0, name: str = "h100", **engine: object) -> Path:
    """A run of 6 requests, 10 a second, 0.05 s to the first token and 20 output tokens each."""
    there = folder / "recorded_vllm"
    there.mkdir(exist_ok=True, parents=True)
    rows = [
        f"{i},{i / 10},{i / 10 + 0.05},{i / 10 + 0.05 + 19e-3 * tpot_ms},{500},{20}" for i in range(6)
    ]  # fmt: skip
    header = "request,queued_s,first_token_s,last_token_s,input_tokens,output_tokens"
    (there / f"{name}_requests.csv").write_text("\n".join([header, *rows]) + "\n")
    (there / f"{name}_engine.json").write_text(json.dumps(ENGINE | engine))
    (there / f"{name}_seconds.csv").write_text("t,running,waiting,kv_cache_pct\n0.06,1,0,0.0\n0.3,2,0,0.0\n5,0,0,0.0\n")
    return folder


def dump(folder: Path, *rows: str) -> Path:
    (folder / "gpu_timings").mkdir(exist_ok=True)
    (folder / "gpu_timings" / "e2e_tpot.csv").write_text("\n".join([POINTS, *rows]) + "\n")
    return folder


def test_a_recorded_run_is_replayed_and_its_series_compared(tmp_path):
    (run,), not_run = recorded_runs(record(tmp_path))
    assert not_run == []
    quantities = [score.quantity for score in run.scores]
    assert quantities == ["mean TTFT", "P99 TTFT", "mean TPOT", "P99 TPOT", "mean E2E", "P99 E2E"]
    found = {score.quantity: score for score in run.scores}
    assert found["mean TPOT"].measured == pytest.approx(7.0)
    assert abs(found["mean TPOT"].error) < 25
    assert found["mean E2E"].measured == pytest.approx(found["mean TTFT"].measured + 19 * 7.0)
    assert [one.what for one in run.series] == ["running"]  # the others never move: not recorded
    assert run.preemptions == 0


def test_runs_that_cannot_be_replayed_are_listed(tmp_path):
    record(tmp_path, name="a", gpu="Abacus")
    record(tmp_path, name="b", model="Nobody-1B")
    record(tmp_path, name="c", max_num_seqs="many")
    record(tmp_path, name="d", data_parallel_size=2, enable_expert_parallel=True)
    found, not_run = recorded_runs(tmp_path)
    assert found == []
    assert [name for name, _ in not_run] == ["a", "b", "c", "d"]
    assert "experts spread over 2" in not_run[3][1]
    assert "unknown GPU" in not_run[0][1]
    assert "max_num_seqs" in not_run[2][1]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("engine.json", "{}", "expected an object with gpu, model"),
        ("engine.json", '{"gpu":\n"H100",}', r"engine.json:2: not JSON, column 8"),
        ("engine.json", None, "cannot be read"),
        ("requests.csv", "queued_s,first_token_s\n1,2\n", "missing columns last_token_s"),
        ("seconds.csv", "t,running,waiting\n1,x,0\n", r"seconds.csv:2: running: expected a finite number"),
    ],
)
def test_malformed_runs_are_an_error(tmp_path, file, text, words):
    path = record(tmp_path, name="a") / "recorded_vllm" / f"a_{file}"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(SimError, match=words):
        recorded_runs(tmp_path)


def test_a_series_may_lack_seconds_columns_or_the_whole_file(tmp_path):
    there = record(tmp_path, name="a") / "recorded_vllm"
    for text in ("t,running,waiting\n0.06,1,0\n0.3,2,0\n", "t,running,waiting,kv_cache_pct\n0.06,1,0,\n0.3,2,0,\n"):
        (there / "a_seconds.csv").write_text(text)
        ((run,), _) = recorded_runs(tmp_path)
        assert [one.what for one in run.series] == ["running"]
    (there / "a_seconds.csv").unlink()
    ((run,), _) = recorded_runs(tmp_path)
    assert run.series == ()


def test_data_parallel_engines_are_replicas(tmp_path):
    """Six requests, one slot an engine: alone they queue one behind the other, on three engines hardly."""
    (alone,), _ = recorded_runs(record(tmp_path, name="alone", max_num_seqs=1))
    (spread,), _ = recorded_runs(record(tmp_path / "x", name="spread", max_num_seqs=1, data_parallel_size=3))
    first, second = (next(s.predicted for s in run.scores if s.quantity == "mean TTFT") for run in (alone, spread))
    assert second < 0.7 * first


DENSE = "x,h100_sxm,llama-3.1-8b,vllm,,,256,64,4,1,1,1,,30.0,7.0"


def test_whole_servers_are_driven_and_what_cannot_be_is_listed(tmp_path):
    experts = "x,h200_sxm,gpt-oss-120b,vllm,,fp4,256,64,4,1,1,1,,60.0,6.0"
    unknown = "x,h900,llama-3.1-8b,vllm,,,256,64,4,1,1,1,,30.0,7.0"
    spread = "x,h200_sxm,gpt-oss-120b,vllm,,fp4,256,64,4,8,4,2,,60.0,6.0"
    points = run_points(
        dump(tmp_path, DENSE, DENSE.replace("7.0", "700"), DENSE.replace("7.0", "7.2"), experts, unknown, spread)
    )
    assert [(s.quantity, s.measured) for s in points.dense] == [("TPOT", 7.2), ("TTFT", 30.0)]
    assert abs(points.dense[0].error) < 20
    assert len(points.experts) == 2
    assert sorted(one.reason.split(":")[0].split("'")[0] for one in points.not_run) == [
        "attention data parallelism, or experts both sliced and spread",
        "unknown GPU ",
    ]


def test_malformed_points_are_an_error(tmp_path):
    with pytest.raises(ScenarioError, match=r"e2e_tpot\.csv:2: tpot_ms"):
        run_points(dump(tmp_path, DENSE.replace("7.0", "fast")))


def test_the_first_and_last_wave_count_once_each():
    """Ten requests a user, four simulated of long outputs: with one user all are alike, and the mean is that of any."""
    scenario = load_mapping(
        {
            "hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}},
            "workload": wave_workload(1, 1024, 8192),
        }
    ).scenario  # fmt: skip
    times = run_waves(scenario, "plain")
    assert scenario.workload.num_requests == SIMULATED
    assert 4 < times.tpot_ms < 9
    assert np.isfinite(times.ttft_ms)
    shapes = wave_workload(2, 1024, 1024)
    assert shapes["output_tokens"] == {"kind": "uniform", "min": 819, "max": 1024}
    assert (shapes["arrivals"]["max_concurrency"], shapes["num_requests"]) == (2, 2 * WAVES)
    other = wave_workload(2, 100, 50)
    assert other["output_tokens"] == {"kind": "uniform", "min": 50, "max": 50}
    assert (other["arrivals"]["max_concurrency"], other["num_requests"]) == (3, 3 * WAVES)


@pytest.mark.usefixtures("without_matplotlib")
def test_gates_page_and_command(tmp_path):
    folder = dump(record(tmp_path), DENSE)
    suite = run_server(folder)
    gates = {gate.name: gate for gate in server_suite_gates(suite)}
    assert gates["TPOT of mixtures of experts, mean"].verdict == "no data"
    assert gates["recorded runs, worst mean"].found is not None
    text = render_server(suite)
    assert "## h100" in text
    assert "llama-3.1-8b, h100-sxm, vllm, bf16" in text
    out = tmp_path / "server.md"
    result = CliRunner().invoke(validate, ["server", "--data", str(folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text() == text
    assert "TPOT of dense servers, mean" in result.output
