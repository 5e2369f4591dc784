"""`specsim run` as users call it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cli import run_command

#: a script that was started with `&` hands on an ignored SIGINT, which Python then leaves ignored
HEEDS_INTERRUPTS = """
import signal, sys
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from sim.cli import main
    main(sys.argv[1:])
"""


@pytest.fixture
def scenario(small_file: Callable[..., str]) -> str:
    loads = {"workload.arrivals.max_concurrency": [1, 2, 3, 4, 5, 6, 8]}
    return small_file(sweep={"replicates": 3, "vary": loads})


def test_summary_then_paths(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", scenario, "--quick", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    *summary, folder, page = out.strip().splitlines()
    assert err == ""
    assert "k3" in "\n".join(summary)
    assert Path(folder.removeprefix("Wrote ")).parent == Path("results/mine")
    assert Path(page.removeprefix("Wrote ")).name == "dashboard.html"
    assert Path(page.removeprefix("Wrote ")).stat().st_size > 1000


def test_json_is_one_document(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", scenario, "--json", "--replicates", "1", "--seed", "7", "--jobs", "1", "-o", "out"]
    assert run_command(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["manifest"]["seed"] == 7
    assert len(document["summary"]) == 7 * 2
    assert Path(document["run_dir"]).is_dir()


def test_dry_run_writes_nothing(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", scenario, "--dry-run"]) == 0
    assert "42 runs = 7 operating points x 2 arms x 3 replicates" in capsys.readouterr().out
    assert run_command(["run", scenario, "--dry-run", "--quick", "--json", "--arms", "plain"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["runs"], plan["replicates"], plan["arms"]) == (5 * 1 * 2, 2, ["plain"])
    assert not Path("results").exists()


def test_quiet_prints_only_paths(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", scenario, "-q", "--replicates", "1", "--jobs", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["Wrote", "Wrote"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing.yaml"], "no such file"),
        (["run", "mine.yaml", "--arms", "k9"], "no such arm: k9"),
        (["run", "mine.yaml", "--set", "engine.max_num_seq=4"], "max_num_seqs"),
        (["run", "mine.yaml", "-o", "mine.yaml"], "choose another folder"),
        (["run", "mine.yaml", "--replicates", "0"], "replicates"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(
    scenario: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_command(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_130_and_keeps_what_finished(
    scenario: str, tmp_path: Path, sent: signal.Signals
) -> None:
    command = ["run", scenario, "--replicates", "2000", "--jobs", "2"]
    arguments = [sys.executable, "-c", HEEDS_INTERRUPTS, *command]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while len(list(tmp_path.glob("results/mine/.*/cells/*/*/*/result.json"))) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(sent)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
    (run_dir,) = (tmp_path / "results" / "mine").iterdir()
    assert json.loads((run_dir / "manifest.json").read_text())["status"] == "interrupted"
    finished = len(list(run_dir.glob("cells/*/*/*/result.json")))
    assert 0 < finished < 2000 * 14
    assert len((run_dir / "summary.csv").read_text().splitlines()) == finished + 1


def test_an_arm_that_can_never_run_is_a_wrong_scenario_and_leaves_nothing(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", scenario, "--set", "arms.k3.speculative_config.method=mtp", "-o", "out"]
    assert run_command(arguments) == 2
    assert "arms.k3.speculative_config: Llama-3.1-8B has no multi-token-prediction layers" in capsys.readouterr().err
    assert run_command([*arguments, "--arms", "plain", "--replicates", "1", "--jobs", "1", "-q"]) == 2
    assert not (tmp_path / "out").exists()


def test_a_model_that_does_not_fit_leaves_no_empty_folder(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", scenario, "--set", "model=llama-3.1-70b", "-o", "out", "--jobs", "1"]) == 2
    assert "no room for KV" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
