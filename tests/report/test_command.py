import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from sim.cli.report import report

Make = Callable[..., Path]


def test_report_writes_the_page_and_prints_the_summary(make: Make, tmp_path: Path) -> None:
    folder = make(loads=(1, 8))
    result = CliRunner().invoke(report, [str(folder), "-o", str(tmp_path / "page.html")])
    assert result.exit_code == 0
    assert "Break-even, output throughput" in result.stdout
    assert result.stdout.rstrip().endswith(f"Wrote {tmp_path / 'page.html'}")
    assert (tmp_path / "page.html").stat().st_size > 1_000_000


def test_quiet_prints_only_the_path(make: Make) -> None:
    folder = make(loads=(1, 8))
    result = CliRunner().invoke(report, [str(folder), "-q"])
    assert result.stdout == f"Wrote {folder / 'dashboard.html'}\n"


def test_missing_folder_ends_with_code_2_and_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sim", "report", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "no such folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
