import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cli import run_command
from sim.scenario.load import load_scenario


@pytest.fixture
def data(small_data: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Verification costs by the token, so that the best K depends on the batch."""
    found = small_data(
        cost_model={"kind": "linear", "base_ms": 8, "per_token_us": 80, "draft": {"base_ms": 0.5}},
        engine={"max_num_seqs": 64, "async_scheduling": False},
    )
    found["arms"]["k3"]["speculative_config"]["model"] = "my/head"
    lengths = {"prompt_tokens": {"kind": "fixed", "value": 20}, "output_tokens": {"kind": "fixed", "value": 30}}
    found["workload"] |= {**lengths, "num_requests": 40}
    return found


@pytest.fixture(autouse=True)
def _folder(small_file: Callable[..., str], data: dict[str, Any]) -> None:
    small_file("s.yaml", **data)


def test_the_vllm_block_pastes_back_and_means_the_same(
    data: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["tune-k", "s.yaml", "--no-simulation", "-q", "--min-range", "1"]) == 0
    printed = capsys.readouterr().out
    config = json.loads(re.fullmatch(r"--speculative-config '(.*)'\n", printed)[1])  # type: ignore[index]
    ranges = config["num_speculative_tokens_per_batch_size"]
    assert len(ranges) > 2
    assert (ranges[0][0], ranges[-1][1]) == (1, 64)
    arms = data["arms"] | {"tuned": data["arms"]["k3"] | {"speculative_config": config}}
    Path("tuned.yaml").write_text(json.dumps(data | {"arms": arms}), encoding="utf-8")
    assert run_command(["check", "tuned.yaml"]) == 0
    assert "tuned" in capsys.readouterr().out
    arm = load_scenario("tuned.yaml").scenario.arms["tuned"]
    table = arm.k_rule.table(arm.speculative_config.max_draft_tokens)
    assert table is not None
    assert [table.at(batch) for batch in (1, 64)] == [ranges[0][2], ranges[-1][2]]


def test_the_check_is_a_results_folder_with_the_table_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--k", "0:3", "--concurrency", "1,16", "--replicates", "2", "--jobs", "1", "--emit", "json"]
    assert run_command(["tune-k", "s.yaml", *options]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    folder = Path(found.pop("run_dir"))
    assert json.loads((folder / "k_schedule.json").read_text()) == found
    assert [row["concurrency"] for row in found["simulated"]["loads"]] == [1, 16]
    page = (folder / "dashboard.html").read_text()
    assert "Draft tokens by requests in a step" in page
    assert (folder / "regret.csv").read_text().count("oracle") > 0
    assert run_command(["report", str(folder), "-o", "again.html"]) == 0


def test_text_fits_a_terminal_and_names_what_k_0_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tune-k", "s.yaml", "--no-simulation", "--over", "context", "--emit", "trtllm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Use the table"
    assert all(len(line) <= 100 for line in lines if not line.startswith(("--", "speculative")))
    text = "\n".join(lines)
    assert "K = 0 is not plain decoding" in text
    assert "By context" in text
    assert "trtllm (from version 1.3)" in text


def test_wrong_options_are_all_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--k", "0", "--tie", "lots", "--concurrency", "0", "--target-version", "0.1"]
    assert run_command(["tune-k", "s.yaml", *options]) == 2
    told = capsys.readouterr().err
    for part in ("--k: K = 0 alone", "--tie: 'lots'", "--concurrency: '0'", "--target-version: ", "before 0.25"):
        assert part in told
    assert run_command(["tune-k", "s.yaml", "--k", "8:0"]) == 2
    assert "K = 0 alone" not in capsys.readouterr().err
    assert run_command(["tune-k", "s.yaml", "--emit", "json", "--target-version", "0.33"]) == 2
    assert "no effect with --emit json" in capsys.readouterr().err
    assert run_command(["tune-k", "s.yaml", "--no-simulation", "--jobs", "2", "--replicates", "3"]) == 2
    told = capsys.readouterr().err
    assert "--jobs: no effect with --no-simulation" in told
    assert "--replicates: no effect" in told
    assert run_command(["tune-k", "s.yaml", "--arm", "nobody"]) == 2
    assert "no such arm: nobody; there are plain, k3" in capsys.readouterr().err
    assert run_command(["tune-k", "s.yaml", "--arm", "plain"]) == 2
    assert "plain does not speculate; K belongs" in capsys.readouterr().err
    assert not Path("results").exists()
