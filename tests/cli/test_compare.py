"""`specsim compare` as pipelines call it."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cli import run_command


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, small_data: Callable[..., dict[str, Any]]) -> list[str]:
    """The same scenario three times: as it is, with a slower drafter, with another seed."""
    place = tmp_path_factory.mktemp("compare")
    sweep = {"replicates": 3, "vary": {"workload.arrivals.max_concurrency": [1, 2]}}
    workload = {**small_data()["workload"], "num_requests": 12}
    (place / "mine.yaml").write_text(json.dumps(small_data(workload=workload, sweep=sweep)))
    found = []
    for name, words in (("a", []), ("b", ["--set", "cost_model.draft_ms=2"]), ("c", ["--seed", "5"])):
        options = ["-o", str(place / name), "--jobs", "1", "-q", *words]
        assert run_command(["run", str(place / "mine.yaml"), *options]) == 0
        found += [str(path) for path in (place / name / "mine").glob("2*")]
    return found


def test_table_says_what_moved(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", *folders[:2]]) == 0
    out = capsys.readouterr().out
    assert "in cost_model.draft_ms (1.0, here 2.0)" in " ".join(out.split())
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


def test_every_folder_that_cannot_be_read_is_named(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "no/a", folders[0], "no/b"]) == 2
    told = capsys.readouterr().err
    assert "no/a/manifest.json: cannot be read" in told
    assert "no/b/manifest.json: cannot be read" in told
