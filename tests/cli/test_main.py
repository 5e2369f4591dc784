"""The group itself: help without heavy imports, exit codes, no tracebacks."""

import subprocess
import sys
from pathlib import Path

import pytest

import sim.cli
from sim import __version__
from sim.cli import COMMANDS, main, run_command
from sim.errors import CapacityError, InvariantError, ScenarioError

HEAVY = ("numpy", "pandas", "matplotlib", "plotly", "pyarrow", "pydantic", "simpy", "yaml", "rich", "scipy")


def specsim(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sim", *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nothing"], []])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from sim.cli import run_command\n"
        f"run_command({arguments!r})\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == ""


def test_help_lists_every_command() -> None:
    done = specsim("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for name, (_, text) in COMMANDS.items():
        assert f"{name} " in done.stdout
        assert text in " ".join(done.stdout.split())


def test_version() -> None:
    assert specsim("--version").stdout == f"specsim {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_of_the_table_is_a_command(name: str) -> None:
    done = specsim(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"specsim {name}" in done.stdout


def test_usage_errors_are_exit_code_2_with_the_nearest_command() -> None:
    done = specsim("chek")
    assert done.returncode == 2
    assert "did you mean 'check'?" in done.stderr
    assert specsim("check").returncode == 2
    assert specsim("check", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ScenarioError("wrong"), 2),
        (CapacityError("wrong"), 2),
        (InvariantError("wrong"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(sim.cli.cli, "invoke", fail)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    assert run_command(["check", "x"]) == code
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert ("specsim: wrong" in captured.err) == (str(error) == "wrong")


def test_our_own_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sim.cli.cli, "invoke", fail)
    with pytest.raises(ZeroDivisionError):
        run_command(["check", "x"])


def test_main_leaves_with_the_exit_code() -> None:
    with pytest.raises(SystemExit) as left:
        main(["chek"])
    assert left.value.code == 2


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = f"{sys.executable} -m sim schema | head -c 10 | tr -d '\\n'; echo ' '${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.endswith(" 0\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize(("target", "code"), [("/dev/full", 5), ("&-", 0)])
def test_output_that_cannot_be_written_gives_no_traceback(target: str, code: int) -> None:
    script = f"{sys.executable} -m sim check quickstart >{target}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr == ("specsim: output cannot be written (No space left on device)\n" if code else "")
