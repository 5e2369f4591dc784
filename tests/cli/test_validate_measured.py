"""`specsim validate --measured` and `specsim report --measured`, from files to text, JSON and page."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sim.bench_results.base import Load, MeasuredPoint
from sim.cli import run_command
from sim.experiment.executor import Serial
from sim.experiment.load_test import Bench, load_tests
from sim.scenario.load import load_scenario

SCENARIO = """
hardware: h100-sxm
model: llama-3.1-8b
arms:
  plain: {}
  k3:
    speculative_config: {method: eagle3, num_speculative_tokens: 3}
    acceptance: {kind: iid, rate: 0.7}
workload:
  arrivals: {kind: closed, max_concurrency: 4}
  prompt_tokens: {kind: fixed, value: 200}
  output_tokens: {kind: fixed, value: 40}
sweep: {replicates: 1}
"""
LENGTHS = 200.0, 40.0


@pytest.fixture(scope="module")
def examples() -> ModuleType:
    """The module that writes made-up results."""
    path = Path(__file__).parents[1] / "bench_results" / "examples.py"
    spec = importlib.util.spec_from_file_location("specsim_tests_bench_results", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(examples: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario and what a server that verifies 1.3 times as slowly reports at three concurrencies, per arm."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    blank = [MeasuredPoint("", "", Load(users), 2 * users, *LENGTHS, {}) for users in (1, 8, 48)]
    tests, _ = load_tests(load_scenario("s.yaml"), {"plain": blank, "k3": blank}, take_lengths=False)
    rows = Bench(tests, tmp_path, 1, Serial()).rows({"verify_time": 1.3})
    for test, (row,) in zip(tests, rows, strict=True):
        document = examples.vllm_bench(test.point.load, test.point.completed, LENGTHS, row)
        Path(f"{test.arm}_c{test.point.load.max_concurrency}.json").write_text(json.dumps(document))
    return tmp_path


def validate(*options: str) -> int:
    return run_command(["validate", "--scenario", "s.yaml", "--jobs", "1", *options])


BOTH = ("--measured", "plain=plain_c*.json", "--measured", "k3=k3_c*.json")


@pytest.mark.usefixtures("files")
def test_text_names_the_factor_and_what_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(*BOTH) == 0
    out = capsys.readouterr().out
    assert "6 load tests of plain, k3" in out
    assert "One factor explains it: verify_time" in out
    assert "    what_if:\n      verify_time: 1.3\n" in out
    assert "specsim calibrate" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.usefixtures("files")
def test_json_has_every_figure_and_pasting_brings_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(*BOTH, "--json", "--set", "what_if={verify_time: 1.3}") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert max(abs(figure["error"]) for figure in found["figures"]) < 1e-3  # files count whole accepted tokens
    assert found["attribution"]["alike"] == []
    assert found["attribution"]["unseen"]["verify_time"] < 0.1
    assert not found["other_workload"]
    assert {(each["arm"], each["max_concurrency"]) for each in found["tests"]} >= {("plain", 1), ("k3", 48)}
    assert {each["load"] for each in found["speedups"]} == {"concurrency 1", "concurrency 8", "concurrency 48"}


@pytest.mark.usefixtures("files")
def test_one_arm_at_one_load_says_what_else_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("--measured", "k3=k3_c8.json") == 0
    out = capsys.readouterr().out
    assert "Measure the plain arm at the same loads too" in out
    assert "Measure three or more loads" in out


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--measured", "plan=k3_c8.json"], "no such arm: plan; there are plain, k3; did you mean plain?"),
        (["--measured", "k3=none*.json"], "--measured k3=none*.json: no such file"),
        (["--measured", "k3=."], "--measured k3=.: no such file; . is a folder, write its files: *.json"),
        (["--measured", "plain=k3_c8.json"], "k3_c8.json: the server drafted 3 tokens a step, arm plain does not"),
        (["--measured", "k3_c8.json"], "which arm? write ARM=FILES"),
        (["--measured", "k3=s.yaml"], "neither JSON nor JSON lines"),
        (["--measured", "k3=k3_c8.json", "physics", "--data", "."], "stands alone, without physics"),
        ([], "against what?"),
    ],
)  # fmt: skip
def test_mistakes_end_with_code_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_all_mistakes_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.json").write_text("{}")
    assert validate("--measured", "plan=k3_c8.json", "--measured", "k3=none.json", "--measured", "k3=bad.json") == 2
    said = capsys.readouterr().err
    assert all(part in said for part in ("no such arm: plan", "k3=none.json: no such file", "bad.json:1: none of the"))


@pytest.mark.usefixtures("files")
def test_another_workload_is_no_reason_to_blame_a_factor(capsys: pytest.CaptureFixture[str]) -> None:
    longer = "workload.output_tokens={kind: fixed, value: 60}"
    assert validate("--measured", "k3=k3_c8.json", "--set", longer) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Not asked: the measured requests have other lengths" in said
    assert "what_if" not in said
    assert "not in the band" in said  # one replicate


@pytest.mark.usefixtures("files")
def test_another_k_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("--measured", "k3=k3_c1.json", "--set", "arms.k3.speculative_config.num_speculative_tokens=5") == 0
    assert "the server drafted 3 tokens a step, arm k3 drafts 5" in capsys.readouterr().out


@pytest.mark.usefixtures("files")
def test_a_scenario_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", "--measured", "k3=k3_c8.json"]) == 2
    assert "--measured needs --scenario" in capsys.readouterr().err


def test_the_page_shows_them_hollow(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "s.yaml", "-q", "--jobs", "1", "--set", "sweep.vary={workload.arrivals.max_concurrency: [1, 8]}"]
    assert run_command(run) == 0
    (folder,) = (files / "results").glob("*/*")
    without = (folder / "dashboard.html").read_text()
    assert run_command(["report", str(folder), "-q", *BOTH]) == 0
    page = (folder / "dashboard.html").read_text()
    assert "-open-dot" not in without
    assert "-open-dot" in page
    assert "k3, measured" in page
    assert len(page) < 3_000_000
    capsys.readouterr()
    assert run_command(["report", str(folder), "--measured", "k9=k3_c8.json"]) == 2
    assert "no such arm: k9; there are plain, k3" in capsys.readouterr().err
