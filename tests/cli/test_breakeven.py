"""`specsim breakeven` as users call it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cli import run_command
from sim.experiment.questions import equal_batch
from sim.scenario.load import load_scenario


@pytest.fixture
def scenario(small_file: Callable[..., str], small_data: Callable[..., dict[str, Any]]) -> str:
    """Verification costs by the token, so that there is a crossing."""
    data = small_data()
    k5 = {**data["arms"]["k3"], "speculative_config": {"method": "eagle3", "num_speculative_tokens": 5}}
    lengths = {"prompt_tokens": {"kind": "fixed", "value": 8}, "output_tokens": {"kind": "fixed", "value": 40}}
    return small_file(
        cost_model={"kind": "linear", "base_ms": 5, "per_token_us": 400, "draft": {"base_ms": 0.25}},
        arms={**data["arms"], "k5": k5},
        workload={**data["workload"], **lengths, "num_requests": 60},
    )


def test_answer_then_paths(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--over", "concurrency", "--range", "1:32", "--arms", "k3", "--jobs", "1", "-q", "--resume"]
    words += ["--objective", "p99_tpot_ms", "--objective", "output_throughput"]
    assert run_command(["breakeven", scenario, *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "At equal step batch" in out
    assert "k3 pays up to about" in out
    assert "p99 of as few as" in out
    assert "k5" not in out
    folder, page = out.strip().splitlines()[-2:]
    assert Path(page.removeprefix("Wrote ")).parent == Path(folder.removeprefix("Wrote "))


def test_json_is_one_document(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--over", "k", "--range", "1:4", "--arms", "k3", "--jobs", "1", "-q", "--json"]
    assert run_command(["breakeven", scenario, *words]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["searches"]
    assert found["axis"] == "k"
    assert found["breakeven"]["axis"] == "arms.k3.speculative_config.num_speculative_tokens"
    assert found["breakeven"]["arms"]["k3"]["output_throughput"]["range_tested"] == [1, 4]
    assert document["equal_batch"] == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "concurency"], "did you mean concurrency?"),
        (["--over", "k"], "--arms, one of k3, k5"),
        (["--over", "concurrency", "--range", "9"], "LOW:HIGH"),
        (["--over", "concurrency", "--range", "9:3"], "0 < LOW < HIGH"),
        (["--over", "concurrency", "--range", "nan:3"], "0 < LOW < HIGH"),
        (["--over", "engine.max_num_seqs"], "state --range"),
        (["--over", "engine.max_num_seq", "--range", "1:4"], "did you mean max_num_seqs?"),
        (["--objective", "mean_tpot"], "Invalid value for '--objective'"),
        (["--objective", "usd_per_mtok_output", "--over", "concurrency"], "cost_per_gpu_hour_usd"),
        (["--objective", "request_goodput", "--over", "concurrency"], "slo"),
        (["--arms", "kk3"], "no such arm: kk3; there are plain, k3, k5; did you mean k3?"),
    ],
)
def test_mistakes_end_with_exit_code_2(
    scenario: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["breakeven", scenario, "--jobs", "1", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("results").exists()


def test_k_is_not_searched_where_a_rule_chooses_it(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--over", "k", "--arms", "k3", "--set", "arms.k3.draft_length={kind: goodput}"]
    assert run_command(["breakeven", scenario, *words]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "K of k3 is chosen by its rule goodput, and num_speculative_tokens is only its cap" in message
    assert "--over arms.k3.speculative_config.num_speculative_tokens --range LOW:HIGH" in message


@pytest.mark.slow
def test_all_three_questions_are_answered(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--range", "1:32", "--arms", "k3", "--jobs", "1", "-q", "--set", "workload.num_requests=200"]
    assert run_command(["breakeven", scenario, *words]) == 0
    out = capsys.readouterr().out
    assert "At equal step batch" in out
    assert "At equal concurrency" in out
    assert "At equal request rate" in out
    assert out.count("Wrote ") == 4


def test_a_baseline_alone_is_refused(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["breakeven", scenario, "--arms", "plain"]) == 2
    assert "nothing to compare with plain" in capsys.readouterr().err
    assert not Path("results").exists()


def test_the_closed_form_meets_the_context_that_explain_states(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_scenario("quickstart")  # prompts and outputs that go together: no product of means
    assert run_command(["explain", "quickstart", "--batch", "1", "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)["demand"]["decode_context_tokens"]
    assert {curve["context_tokens"] for curve in equal_batch(loaded).values()} == {stated}
