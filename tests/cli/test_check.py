import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.cli import run_command

GOOD = "model: llama-3.1-8b\nhardware: h100-sxm\narms:\n  plain: {}\n"
BAD = GOOD + "engine: {max_num_seq: 4}\nslo: {}\n"
NOTED = GOOD + "engine: {trust_remote_code: true}\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(text: str, *options: str) -> int:
    Path("s.yaml").write_text(text, encoding="utf-8")
    return run_command(["check", "s.yaml", *options])


def test_a_good_scenario_says_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(GOOD) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "s: 1 arm x 9 cells x 5 replicates = 45 runs"
    assert lines[1].startswith("  engine: vLLM-like (preset version 1): {block_size: 16, ")
    assert max(map(len, lines)) <= 100
    plain = " ".join(" ".join(lines[1:-1]).split()).partition(" plain: ")[2]
    assert plain.startswith("{method: plain}; KV pool ")
    assert plain.endswith(" tokens, max_num_seqs 1024, max_num_batched_tokens 8192")
    assert lines[-1] == "ok"


def test_problems_are_all_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(BAD) == 2
    out = capsys.readouterr().out
    assert "s.yaml:5:10: engine.max_num_seq: unknown key; did you mean max_num_seqs?" in out
    assert "s.yaml:6:1: slo: states no bound" in out
    assert "2 problems, 0 notes" in out


def test_strict_fails_on_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(NOTED) == 0
    assert check(NOTED, "--strict") == 2
    assert "note: s.yaml:5:10: engine.trust_remote_code: accepted, no effect" in capsys.readouterr().out
    assert check(GOOD, "--strict") == 0


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(BAD, "--format", "json") == 2
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["problems"][0] == {
        "file": "s.yaml", "line": 5, "column": 10, "key": "engine.max_num_seq",
        "message": "unknown key; did you mean max_num_seqs?",
    }  # fmt: skip
    assert check(NOTED, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], len(document["notes"]), len(document["summary"])) == (True, 1, 3)


def test_github_annotations_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(NOTED + "slo: {ttft: '1\\n%::error'}\nbaseline: 'a%0A,b'\n", "--format", "github") == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("::error file=s.yaml,line=6,col=13::slo.ttft: expected a duration")
    assert all(line.startswith(("::error", "::notice")) for line in lines)
    assert check(NOTED, "--format", "github") == 0
    expected = "::notice file=s.yaml,line=5,col=10::engine.trust_remote_code: accepted, no effect\n"
    assert capsys.readouterr().out == expected


def test_set_changes_what_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(GOOD, "--set", "engine.max_num_seqs=nope") == 2
    assert "--set: engine.max_num_seqs: expected a count" in capsys.readouterr().out
    assert check(GOOD, "--set", "sweep.vary={}", "--set", "sweep.replicates=1") == 0
    assert "1 arm x 1 cell x 1 replicate = 1 run" in capsys.readouterr().out


def test_a_model_that_does_not_fit_is_found_without_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(GOOD, "--set", "model=llama-3.1-70b") == 2
    assert "arms.plain: " in capsys.readouterr().out


def test_a_cell_that_does_not_fit_is_found_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(GOOD, "--set", "sweep.vary={model: [llama-3.1-8b, llama-3.1-70b]}") == 2
    assert "1 problem, " in capsys.readouterr().out


def test_missing_files_are_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", "nothing.yaml"]) == 2
    assert "nothing.yaml: no such file" in capsys.readouterr().out


def test_check_imports_no_analysis_libraries() -> None:
    Path("s.yaml").write_text(GOOD, encoding="utf-8")
    code = "import sys; from sim.cli import run_command; run_command(['check', 's.yaml'])\n"
    code += "assert not {'pandas', 'plotly', 'pyarrow', 'scipy'} & set(sys.modules), sorted(sys.modules)"
    path = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
