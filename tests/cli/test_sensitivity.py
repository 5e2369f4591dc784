import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cli import run_command


@pytest.fixture(autouse=True)
def _folder(small_file: Callable[..., str], small_data: Callable[..., dict[str, Any]]) -> None:
    workload = {**small_data()["workload"], "num_requests": 40}
    small_file("s.yaml", engine={"async_scheduling": False}, workload=workload)


def test_table_page_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--over", "draft_time,prompt_tokens", "--range", "draft_time=0.5:2", "--replicates", "2", "--jobs", "1"]
    assert run_command(["sensitivity", "s.yaml", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("k3 pays: output throughput")
    assert all(len(line) <= 100 for line in lines if not line.startswith("Wrote"))
    assert any(" 0.50-2.00 " in line for line in lines)
    assert any("prompt_tokens; range: +-25 % by convention" in line for line in lines)
    folder = Path(lines[-2].removeprefix("Wrote "))
    assert {"sensitivity.json", "sensitivity.csv", "dashboard.html"} <= {path.name for path in folder.iterdir()}
    assert "How wrong may the inputs be?" in (folder / "dashboard.html").read_text()


def test_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--over", "host_time", "--replicates", "2", "--jobs", "1", "--search", "0.9:1.1", "--json"]
    assert run_command(["sensitivity", "s.yaml", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"][0]["status"] == "does_not_flip"
    assert found["searched"] == [0.9, 1.1]
    assert (Path(found["run_dir"]) / "sensitivity.json").is_file()


def test_wrong_options_are_all_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--range", "acceptance", "--range", "draft_time=2:3", "--search", "4:1"]
    options += ["--over", "acceptnce,luck,request_rate"]
    assert run_command(["sensitivity", "s.yaml", *options, "--arm", "plain"]) == 2
    told = capsys.readouterr().err
    for part in (
        "no such input: 'acceptnce'; did you mean acceptance?",
        "no such input: 'luck'",
        "request_rate: this scenario has no workload.arrivals.request_rate",
        "--range: found 'acceptance'",
        "--range: '2:3': allowed: 0 < LOW <= 1 <= HIGH",
        "--search: '4:1'",
        "--arm: no such arm beside the baseline: plain; there are k3",
    ):
        assert part in told
