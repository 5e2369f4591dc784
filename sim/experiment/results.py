"""Results folders as Python objects: `load(run_dir)` for users of pandas."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import ResultsError
from sim.experiment.manifest import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Experiment:
    """One results folder; pandas is imported when a table is asked for.

    Attributes:
        run_dir: the folder.
        manifest: what was run and how it ended.
    """

    run_dir: Path
    manifest: dict[str, Any]

    @cached_property
    def summary(self) -> "pd.DataFrame":
        """One row per cell, arm and replicate."""
        return _read_parquet(self.run_dir / "summary.parquet")

    def requests(self, cell_id: str, arm: str, replicate: int = 0) -> "pd.DataFrame":
        """One row per request of a run.

        Raises:
            ResultsError: there is no such run.
        """
        return _read_parquet(self._run(cell_id, arm, replicate) / "requests.parquet")

    def timeline(self, cell_id: str, arm: str, replicate: int = 0) -> "pd.DataFrame":
        """The engine's state over time in a run.

        Raises:
            ResultsError: there is no such run.
        """
        return _read_parquet(self._run(cell_id, arm, replicate) / "timeline.parquet")

    def result(self, cell_id: str, arm: str, replicate: int = 0) -> dict[str, Any]:
        """`result.json` of a run: acceptance by position, step time by part, memory, notes.

        Raises:
            ResultsError: there is no such run.
        """
        return read_document(self._run(cell_id, arm, replicate) / "result.json")

    def compare(self) -> "pd.DataFrame":
        """Every arm against the baseline: paired ratios with intervals."""
        import pandas as pd

        try:
            return pd.read_csv(self.run_dir / "compare.csv", dtype={"cell_id": str})
        except (OSError, ValueError) as error:
            raise ResultsError(f"{self.run_dir / 'compare.csv'}: cannot be read ({error})") from error

    def regret(self) -> "pd.DataFrame":
        """What each way of choosing K loses against the oracle and the best fixed K; empty when K is no choice."""
        import pandas as pd

        path = self.run_dir / "regret.csv"
        if not path.is_file():
            return pd.DataFrame()
        try:
            return pd.read_csv(path, dtype={"cell_id": str})
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: cannot be read ({error})") from error

    def breakeven(self) -> dict[str, Any]:
        """Break-even points with intervals, and the closed forms."""
        return read_document(self.run_dir / "breakeven.json")

    def document(self) -> dict[str, Any]:
        """Everything small in one document: what `specsim run --json` prints."""
        rows = read_document(self.run_dir / "summary.json")["rows"]
        return {"run_dir": str(self.run_dir), "manifest": self.manifest, "summary": rows, "breakeven": self.breakeven()}

    def _run(self, cell_id: str, arm: str, replicate: int) -> Path:
        folder = self.run_dir / "cells" / cell_id / arm / f"r{replicate}"
        if not (folder / "result.json").is_file():
            raise ResultsError(f"{folder}: no finished run there")
        return folder


def load(run_dir: str | Path) -> Experiment:
    """Open a results folder.

    Raises:
        ResultsError: not a results folder, or written by a newer specsim.
    """
    folder = Path(run_dir)
    manifest = read_document(folder / "manifest.json")
    version = manifest.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise ResultsError(f"{folder}: results of schema version {version}; this specsim reads up to {SCHEMA_VERSION}")
    return Experiment(folder, manifest)


def read_document(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ResultsError: missing, damaged, or not an object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not valid JSON"
        raise ResultsError(f"{path}: cannot be read ({reason})") from error
    if not isinstance(document, dict):
        raise ResultsError(f"{path}: expected a JSON object")
    return document


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read ({error})") from error
