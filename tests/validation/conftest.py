"""Made-up folders of published rows."""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.validation.published import COLUMNS

#: A folder with one table, a row for each set of changes.
Publish = Callable[..., Path]

ROW = {
    "source": "a paper", "table_or_section": "Table 1", "target_model": "Llama-3.1-8B-Instruct", "gpu": "H100-80GB",
    "n_gpus": "1", "engine": "vLLM 0.10.1.1", "method": "EAGLE-3", "k_or_tree": "3", "dataset": "made up",
    "input_len": "64", "output_len": "32", "batch_or_concurrency": "1", "metric": "output tok/s", "plain_value": "",
    "spec_value": "", "speedup": "1.5", "mean_accepted_len": "2.3", "trust": "5", "notes": "",
}  # fmt: skip


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where the extra is not installed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    def write(*changes: dict[str, str]) -> Path:
        (tmp_path / "published").mkdir(exist_ok=True)
        with (tmp_path / "published" / "some.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for number, change in enumerate(changes):
                writer.writerow(ROW | {"case_id": f"case-{number}"} | change)
        return tmp_path

    return write
