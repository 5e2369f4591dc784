"""The committed pages of `specsim validate` are what it writes: a quick part of them, and (slow) their targets."""

import csv
from pathlib import Path

import pytest

from sim.validation.published import COLUMNS, read_published
from sim.validation.recorded_runs import recorded_runs
from sim.validation.scores import Score
from sim.validation.server_suite import run_server, server_suite_gates
from sim.validation.speedup import run_speedups
from sim.validation.speedup_gates import speedup_gates
from sim.validation.suite_page import gate_table
from sim.validation.time_shares import score_shares

PAGES = Path(__file__).resolve().parents[2] / "results" / "validation"

#: Sources that run in a second or two.
QUICK = ("VLLM20780", "MAGIC")
#: Figures on the pages have four digits.
DIGITS = 1e-3


def on_page(page: str) -> dict[tuple[str, str], float]:
    """Predicted figures by case and quantity."""
    cells = [line.split(" | ") for line in (PAGES / f"{page}.md").read_text().splitlines()]
    rows = [row for row in cells if len(row) == 11 and row[3] not in ("predicted", "---")]
    return {(row[0].removeprefix("| "), row[2]): float(row[3].replace(",", "")) for row in rows}


def assert_on_page(page: str, scores: list[Score]) -> None:
    known = on_page(page)
    for score in scores:
        assert score.predicted == pytest.approx(known[score.name, score.quantity], rel=DIGITS), score.name


def test_published_cases_are_those_on_the_page(shared_data: Path, tmp_path: Path) -> None:
    with (shared_data / "published" / "published_visible.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case_id"].startswith(QUICK)]
    with (tmp_path / "some.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    suite = run_speedups(tmp_path)
    assert suite.not_run == ()
    assert len(suite.found) == len(rows) == 33
    assert_on_page("speedup", suite.scores)


def test_recorded_runs_are_those_on_the_page(shared_data: Path) -> None:
    runs, not_run = recorded_runs(shared_data)
    assert not_run == []
    assert_on_page("server", [score for run in runs for score in run.scores])


@pytest.mark.slow
def test_targets_of_the_pages(shared_data: Path) -> None:
    """About three minutes."""
    suite, rows = run_speedups(shared_data), read_published(shared_data)
    speedup = gate_table(speedup_gates(suite, score_shares(rows, shared_data)))
    server = gate_table(server_suite_gates(run_server(shared_data)))
    assert speedup in (PAGES / "speedup.md").read_text()
    assert server in (PAGES / "server.md").read_text()
