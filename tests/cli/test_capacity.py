"""`specsim capacity` on the command line: every mistake at once, and a small answer."""

import json
from pathlib import Path

import pytest

from sim.cli import run_command
from sim.cli.slo_options import parse_load, parse_slo
from sim.report.capacity import capacity_text

SCENARIO = """
name: tiny
hardware: {gpu: h100-sxm, cost_per_gpu_hour_usd: 3}
model: llama-3.1-8b
cost_model: {kind: constant, target_ms: 10}
engine: {max_num_seqs: 1, max_model_len: 64}
arms: {plain: {}}
workload:
  arrivals: {kind: closed, max_concurrency: 2}
  prompt_tokens: {kind: fixed, value: 8}
  output_tokens: {kind: fixed, value: 1}
  num_requests: 300
sweep: {replicates: 2}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def test_the_answer_is_one_document_or_a_table(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["capacity", scenario, "--slo", "ttft:40 ms,percentile:90", "--load", "120rps", "-q", "--jobs", "1"]
    arguments += ["--max-replicates", "2", "--tolerance", "0.3", "-o", str(tmp_path / "out"), "--json"]
    assert run_command(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    document = printed["capacity"]
    assert document["slo"] == {"ttft": 40.0, "percentile": 90.0}
    assert 50 < document["arms"]["plain"]["capacity"]["value"] < 100
    assert document["fleet"]["arms"]["plain"]["gpus"] == 2
    assert (Path(printed["run_dir"]) / "capacity.json").is_file()
    assert (Path(printed["run_dir"]) / "dashboard.html").is_file()
    text = capacity_text(document)
    assert "TTFT 40.0 ms for 90 % of the requests (requests/s)" in text
    assert "Replicas for 120 requests/s, simulated behind a least_outstanding router" in text
    assert "closed replaced by poisson" in text
    document["arms"]["eagle3-k3"] = document["arms"]["plain"] | {
        "ratio": {"value": 1.18, "ci_low": 1.17, "ci_high": 1.19, "verdict": "better"}
    }
    table = capacity_text(document).splitlines()
    assert any(line.endswith("1.18x (1.17-1.19) +") for line in table)
    assert max(map(len, table)) <= 100


def test_every_mistake_is_told_at_once(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--slo", "ttft:1,pot:2", "--load", "many", "--range", "5:1", "--set", "engine.max_num_seqs=0"]
    assert run_command(["capacity", scenario, *wrong]) == 2
    message = capsys.readouterr().err
    for expected in ("--slo: 'pot:2'", "--load: found 'many'", "--range: found 5:1", "engine.max_num_seqs"):
        assert expected in message


def test_an_slo_is_needed(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["capacity", scenario]) == 2
    assert "slo: missing" in capsys.readouterr().err


def test_unit_and_axis_of_a_load_agree(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["capacity", scenario, "--slo", "ttft:40", "--load", "9 users", "--over", "request_rate"]) == 2
    assert "--over request_rate" in capsys.readouterr().err


def test_slo_options() -> None:
    assert parse_slo("ttft:2000, tpot:50") == {"ttft": 2000.0, "tpot": 50.0}
    assert parse_slo("e2el:3 s") == {"e2el": "3 s"}
    assert parse_slo("mlperf/llama3.1-8b") == "mlperf/llama3.1-8b"
    for wrong in ("nothing-published", "ttft:", "ttft:1,ttft:2", "p99:3"):
        with pytest.raises(ValueError, match=r"allowed|unknown|stated twice"):
            parse_slo(wrong)


def test_load_options() -> None:
    assert parse_load("40rps") == (40.0, "request_rate")
    assert parse_load("1e2 users") == (100.0, "concurrency")
    assert parse_load("7.5") == (7.5, None)
    for wrong in ("", "-3", "0", "3 dogs", "1.2.3", "inf"):
        with pytest.raises(ValueError, match="allowed"):
            parse_load(wrong)
