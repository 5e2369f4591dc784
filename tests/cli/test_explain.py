import json
import subprocess
import sys
from pathlib import Path

import pytest

from sim.cli import run_command

SCENARIO = """
model: llama-3.1-8b
hardware: h100-sxm
arms:
  plain: {}
  k3: {speculative_config: {method: eagle3, num_speculative_tokens: 3}, acceptance: {kind: iid, rate: 0.7}}
  k5: {speculative_config: {method: eagle3, num_speculative_tokens: 5}, acceptance: {kind: iid, rate: 0.7}}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO, encoding="utf-8")


def document(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, list[dict[str, object]]]:
    assert run_command(["explain", "s.yaml", "--json", *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)  # type: ignore[no-any-return]


def covered(found: dict[str, list[dict[str, object]]], key: str) -> list[int]:
    rows: list[dict[str, int]] = found["tables"][0]["rows"]  # type: ignore[assignment]
    return sorted({row[key] for row in rows})


def test_text_answers_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", "s.yaml", "--batch", "1,8"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("s: Llama-3.1-8B on 1 x H100-SXM, bf16 weights, bf16 KV cache\n")
    assert "\x1b" not in captured.out
    for title in ("Does it pay?", "Arms", "Cost model", "Memory of each GPU", "Step time, eagle3", "Prefill of a mean"):
        assert f"\n\n{title}" in captured.out


def test_lists_ranges_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--batch", "64, 1,8,8", "--k", "0:2,5", "--context", "512,8k")
    assert covered(found, "batch") == [1, 8, 64]
    assert covered(found, "num_draft_tokens") == [0, 1, 2, 5]
    assert covered(found, "context_tokens") == [512, 8000]


def test_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys)
    assert covered(found, "batch") == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert covered(found, "num_draft_tokens") == [0, 1, 2, 3, 4, 5]
    assert covered(found, "context_tokens") == [1024 + 128]


def test_set_and_arms_narrow_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--arms", "k3", "--set", "engine.max_num_seqs=32")
    assert [arm["name"] for arm in found["arms"]] == ["plain", "k3"]
    memory: dict[str, int] = found["arms"][0]["memory"]  # type: ignore[assignment]
    assert memory["max_num_seqs"] == 32


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--batch", "0", "allowed: 1 to 1,000,000"),
        ("--batch", "1,x", "'x': expected a count"),
        ("--batch", "", "a range `0:5`"),
        ("--batch", "1,,2", "a range `0:5`"),
        ("--batch", "1.5", "expected a whole number"),
        ("--batch", "1:100", "100 values; allowed: at most 64"),
        ("--batch", "1:50,60:99", "values; allowed: at most 64"),
        ("--k", "3:1", "ranges ascending"),
        ("--k", "65", "allowed: 0 to 64"),
        ("--k", "-1", "allowed: 0 to 64"),
        ("--context", "8 kB", "unknown unit"),
        ("--context", "1e999", "expected a finite number"),
        ("--context", "200k", "below engine.max_model_len"),
        ("--arms", "k4", "no such arm: k4"),
        ("--set", "engine.block_size=x", "block_size"),
    ],
)
def test_bad_values_are_exit_code_2(option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", "s.yaml", option, value]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


def test_what_does_not_fit_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", "s.yaml", "--set", "model.target=llama-3.1-70b"]) == 2
    err = capsys.readouterr().err
    assert "arms.plain: Llama-3.1-70B on 1 x H100-SXM" in err
    assert "Memory of each GPU" in err


def test_neither_pandas_nor_plotly_and_under_a_second_of_cpu() -> None:
    code = (
        "import sys, time\nfrom sim.cli import run_command\n"
        "import sim.cli.explain\nstart = time.process_time()\n"
        "assert run_command(['explain', 'quickstart']) == 0\n"
        "heavy = [name for name in ('pandas', 'plotly', 'pyarrow', 'rich') if name in sys.modules]\n"
        "print(time.process_time() - start, *heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    (seconds,) = done.stderr.split()
    assert float(seconds) < 1.0
