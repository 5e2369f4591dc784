"""`specsim compare` as pipelines call it."""

import csv
import json
import signal
from pathlib import Path

import pytest

from sim.cli import run_command

SCENARIO = """
hardware: h100-sxm
model: llama-3.1-8b
cost_model: {kind: constant, target_ms: 10, draft_ms: 1}
arms:
  plain: {}
  k3:
    speculative_config: {method: eagle3, num_speculative_tokens: 3}
    acceptance: {kind: iid, rate: 0.7}
workload:
  arrivals: {kind: closed, max_concurrency: 2}
  prompt_tokens: {kind: fixed, value: 60}
  output_tokens: {kind: fixed, value: 30}
  num_requests: 12
sweep: {replicates: 3, vary: {workload.arrivals.max_concurrency: [1, 2]}}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same scenario three times: as it is, with a slower drafter, with another seed."""
    place = tmp_path_factory.mktemp("compare")
    (place / "mine.yaml").write_text(SCENARIO)
    found = []
    for name, words in (("a", []), ("b", ["--set", "cost_model.draft_ms=2"]), ("c", ["--seed", "5"])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, "signal", lambda *_: None)
            assert (
                run_command(["run", str(place / "mine.yaml"), "-o", str(place / name), "--jobs", "1", "-q", *words])
                == 0
            )
        (folder,) = (place / name / "mine").glob("2*")
        found.append(str(folder))
    return found


def test_table_says_what_moved(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", *folders[:2]]) == 0
    out = capsys.readouterr().out
    assert "differs from" in out
    assert "cost_model" in out
    moved = [line for line in out.splitlines() if line.startswith("k3 ") and "output_throughput" in line]
    assert len(moved) == 2
    assert all(line.endswith("worse") for line in moved)
    assert not [line for line in out.splitlines() if line.startswith("plain ")]
    assert run_command(["compare", *folders[:2], "--all"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("plain ")]


def test_limits_decide_the_exit_code(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", *folders[:2], "--fail-if", "mean_tpot_ms>+5%"]) == 3
    assert "mean_tpot_ms>+5%: FAILED (2 held, 2 failed)" in capsys.readouterr().out
    assert run_command(["compare", *folders[:2], "--fail-if", "mean_tpot_ms>+50%", "--strict"]) == 0
    assert run_command(["compare", *folders[:2], "--fail-if", "mean_tpot_ms>+5%", "--arms", "plain"]) == 0
    by_chance = ["compare", folders[0], folders[2], "--fail-if", "mean_tpot_ms>0", "--arms", "k3"]
    assert run_command(by_chance) == 0
    assert "not resolved" in capsys.readouterr().out
    assert run_command([*by_chance, "--strict"]) == 3


def test_json_and_csv_hold_every_difference(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "out.csv"
    words = ["--metrics", "mean_tpot_ms,steps", "--fail-if", "output_throughput<-1%", "--csv", str(table), "--json"]
    assert run_command(["compare", *folders, *words]) == 3
    document = json.loads(capsys.readouterr().out)
    assert len(document["differences"]) == 2 * 2 * 2 * 3  # folders, arms, points, metrics
    assert {each["state"] for each in document["limits"]} >= {"failed", "held"}
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["metric"] for row in rows] == [each["metric"] for each in document["differences"]]
    assert {row["paired"] for row in rows if row["folder"] == "2"} == {"False"}


def test_every_mistake_is_named_at_once(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--metrics", "mean_tpot", "--fail-if", "p99_tft_ms>5%", "--fail-if", "nothing"]
    assert run_command(["compare", *folders[:2], *words]) == 2
    err = capsys.readouterr().err
    assert "did you mean p99_ttft_ms?" in err
    assert "--metrics: 'mean_tpot': no such metric; did you mean mean_tpot_ms?" in err
    assert "'nothing'" in err
    assert run_command(["compare", folders[0]]) == 2
    assert run_command(["compare", folders[0], "nowhere"]) == 2
    assert run_command(["compare", *folders[:2], "--arms", "k9"]) == 2
