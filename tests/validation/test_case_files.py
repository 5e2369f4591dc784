"""Cases of the suites as scenario files: they say the same as what the suite runs, and other commands take them."""

from pathlib import Path

import pandas as pd
import pytest

from sim.cli import run_command
from sim.scenario.dump import dump_data
from sim.scenario.load import load_mapping, load_scenario
from tests.validation.test_server_suite import dump, record


@pytest.fixture
def folder(publish, tmp_path: Path) -> Path:
    publish({"notes": "clones"}, {"mean_accepted_len": "", "batch_or_concurrency": "8"}, {"engine": "of nobody"})
    dump(
        tmp_path,
        "0,h100_sxm,LLAMA3.1_8B,vllm,,bf16,256,64,4,1,1,1,1,30,8",
        "1,abacus,LLAMA3.1_8B,vllm,,bf16,256,64,4,1,1,1,1,30,8",
    )
    return record(record(tmp_path), name="lost", gpu="Abacus")


def test_what_can_be_run_is_written_and_loads(folder, tmp_path, capsys):
    assert run_command(["validate", "cases", "--data", str(folder), "-o", str(tmp_path / "out")]) == 0
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.glob("out/*/*.yaml"))
    assert written[0].startswith("server/LLAMA3.1_8B_h100-sxm_vllm")
    assert written[1:] == ["server/h100.yaml", "speedup/case-0.yaml", "speedup/case-1.yaml"]
    assert "Wrote 4 scenarios" in capsys.readouterr().out
    for path in written:
        load_scenario(str(tmp_path / "out" / path))
    text = (tmp_path / "out" / "speedup" / "case-0.yaml").read_text()
    assert "# speed-up: measured 1.5, predicted" in text
    assert "# acceptance stated 2.3" in text
    assert run_command(["explain", str(tmp_path / "out" / written[2])]) == 0


def test_a_recorded_run_is_served_with_its_own_arrivals(folder, tmp_path):
    run_command(["validate", "cases", "--data", str(folder), "-o", str(tmp_path / "out")])
    assert (
        run_command(["run", str(tmp_path / "out/server/h100.yaml"), "--jobs", "1", "-q", "-o", str(tmp_path / "r")])
        == 0
    )
    served = [pd.read_parquet(path) for path in tmp_path.glob("r/*/*/cells/*/*/*/requests.parquet")]
    assert {len(table) for table in served} == {6}
    assert {round(table["arrival_s"].max(), 6) for table in served} == {0.5}


def test_texts_that_look_like_something_else_stay_texts(tmp_path):
    data = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "arms": {"plain": {}, "no": {}}, "name": "1e3"}
    (tmp_path / "odd.yaml").write_text(dump_data(data))
    assert load_scenario(str(tmp_path / "odd.yaml")).scenario == load_mapping(data).scenario


def test_a_folder_without_cases_says_what_is_needed(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert run_command(["validate", "cases", "--data", str(tmp_path / "empty"), "-o", str(tmp_path / "out")]) == 2
    assert "has no cases" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
