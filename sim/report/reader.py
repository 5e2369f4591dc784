"""A results folder as Python objects: the only part of `report` that knows how the folder is laid out.

`load_results` reads the small files at once; per-run files (requests, timeline, result.json) are read when asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from sim.bench_results.base import MeasuredPoint
from sim.errors import ResultsError
from sim.experiment.results import read_document
from sim.metrics.statistics import mean_interval
from sim.report.axis import Axis, Cell, Slice, order_cells, sweep_axis


@dataclass(frozen=True, slots=True)
class Level:
    """Mean of one metric of one arm in one cell over its replicates, with its t-interval (None for one run)."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row of `compare.csv`: `speedup` above 1 means that the arm is better, for rates and times alike."""

    speedup: float
    low: float | None
    high: float | None
    n: int
    verdict: str


@dataclass(frozen=True)
class Results:
    """One experiment.

    Attributes:
        run_dir: the folder.
        manifest, break_even, scenario: parsed `manifest.json`, `breakeven.json` and `scenario.resolved.yaml`.
        scenario_text: `scenario.resolved.yaml` as text.
        summary, compare, regret: the tables as they are; `regret` is empty when K is no choice.
        arms: all arms, the baseline first.
        axis: what the sweep varies (its break-even axis), or None for a single operating point.
        cells: every operating point, ordered along the axis.
        measured: load tests of a real server to be drawn as well, by arm.
    """

    run_dir: Path
    manifest: Mapping[str, Any]
    break_even: Mapping[str, Any]
    scenario: Mapping[str, Any]
    scenario_text: str
    summary: pd.DataFrame
    compare: pd.DataFrame
    regret: pd.DataFrame
    arms: tuple[str, ...]
    axis: Axis | None
    cells: tuple[Cell, ...]
    measured: Mapping[str, Sequence[MeasuredPoint]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.scenario.get("name") or self.run_dir.resolve().name)

    @property
    def baseline(self) -> str:
        """The arm that all others are compared with."""
        return self.arms[0]

    @property
    def challengers(self) -> tuple[str, ...]:
        """The arms that are compared with the baseline."""
        return self.arms[1:]

    @property
    def done(self) -> tuple[Cell, ...]:
        """The cells that have results."""
        return tuple(cell for cell in self.cells if cell.done)

    @property
    def confidence(self) -> float:
        """Level of all intervals."""
        return float(self.manifest.get("confidence", 0.95))

    @property
    def ci(self) -> str:
        """How to announce an interval: `95 % CI`."""
        return f"{100 * self.confidence:.3g} % CI"

    @property
    def verification(self) -> dict[str, tuple[str, bool]]:
        """Speculating arm -> its verification rules by name, and whether its output stays the target's."""
        found = self.manifest.get("verification") or {}
        return {arm: (", ".join(map(str, rule["kinds"])), bool(rule["lossless"])) for arm, rule in found.items()}

    def extra(self, name: str) -> dict[str, Any] | None:
        """The answer of a command that adds a JSON file to the folder; None without one."""
        path = self.run_dir / name
        return read_document(path) if path.is_file() else None

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """Cells grouped by what is varied besides the axis; one group with an empty label when nothing else is.

        Fields varied in step (`combine: zip`) make no groups: every value of the axis has its own of the others.
        """
        if _in_step(self.scenario):
            return (Slice("", self.cells),)
        labels = dict.fromkeys(cell.others for cell in self.cells)
        return tuple(Slice(label, tuple(cell for cell in self.cells if cell.others == label)) for label in labels)

    @cached_property
    def _rows(self) -> dict[tuple[str, str], pd.DataFrame]:
        return {(str(cell), str(arm)): rows for (cell, arm), rows in self.summary.groupby(["cell_id", "arm"])}

    @cached_property
    def _ratios(self) -> dict[tuple[str, str, str], Ratio]:
        records = self.compare.to_dict("records")
        return {(str(row["cell_id"]), str(row["arm"]), str(row["metric"])): _ratio(row) for row in records}

    def runs(self, cell: Cell, arm: str) -> pd.DataFrame:
        """The rows of `summary.csv` of one cell and arm, one per replicate; may be empty."""
        return self._rows.get((cell.cell_id, arm), self.summary.iloc[:0])

    def level(self, cell: Cell, arm: str, metric: str) -> Level | None:
        """Mean and interval of a column of `summary.csv`; None when no run has a value."""
        rows = self.runs(cell, arm)
        if metric not in rows:
            return None
        return _level(pd.to_numeric(rows[metric], errors="coerce").dropna().to_list(), self.confidence)

    def ratio(self, cell: Cell, arm: str, metric: str) -> Ratio | None:
        """The paired comparison with the baseline, or None."""
        return self._ratios.get((cell.cell_id, arm, metric))

    def saturated(self, cell: Cell, arm: str) -> bool:
        """Whether any replicate was flagged as saturated (open loop: the queue grows without bound)."""
        rows = self.runs(cell, arm)
        flags = rows["saturated"].astype(str) if "saturated" in rows else ()
        return any(flag.lower() in ("true", "1", "1.0") for flag in flags)

    def replicates(self, cell: Cell, arm: str) -> list[Path]:
        """The folders of the finished replicates of one cell and arm."""
        folder = self.run_dir / "cells" / cell.cell_id / arm
        found = folder.glob("r*/result.json") if folder.is_dir() else ()
        return sorted((path.parent for path in found), key=lambda path: (len(path.name), path.name))

    def details(self, cell: Cell, arm: str) -> list[dict[str, Any]]:
        """`result.json` of every finished replicate."""
        return [self._detail(folder) for folder in self.replicates(cell, arm)]

    @cached_property
    def _parsed(self) -> dict[Path, dict[str, Any]]:
        return {}

    def _detail(self, folder: Path) -> dict[str, Any]:
        if folder not in self._parsed:
            self._parsed[folder] = read_document(folder / "result.json")
        return self._parsed[folder]


def load_results(run_dir: Path) -> Results:
    """Read a results folder.

    Raises:
        ResultsError: no such folder, not a results folder, nothing finished in it, or a file is damaged.
    """
    manifest = _manifest(run_dir)
    summary = _table(run_dir / "summary.csv")
    if summary.empty:
        raise ResultsError(f"{run_dir}: no run has finished, so there is nothing to report")
    for column in ("cell_id", "arm"):
        if column not in summary:
            raise ResultsError(f"{run_dir / 'summary.csv'}: the column {column} is missing")
    compare, regret = (_table(run_dir / name, optional=True) for name in ("compare.csv", "regret.csv"))
    break_even = read_document(run_dir / "breakeven.json") if (run_dir / "breakeven.json").is_file() else {}
    scenario, text = _scenario(run_dir / "scenario.resolved.yaml")
    axis = sweep_axis(summary, break_even, in_step=_in_step(scenario))
    cells = order_cells(summary, manifest.get("cells", ()), axis)
    arms = _arms(summary, manifest, scenario)
    return Results(run_dir, manifest, break_even, scenario, text, summary, compare, regret, arms, axis, cells)


def _in_step(scenario: Mapping[str, Any]) -> bool:
    return bool((scenario.get("sweep") or {}).get("combine") == "zip")


def _manifest(run_dir: Path) -> dict[str, Any]:
    if not run_dir.is_dir():
        raise ResultsError(f"{run_dir}: no such folder; expected a results folder written by `specsim run`")
    if not (run_dir / "manifest.json").is_file():
        hint = "; the run is unfinished" if (run_dir / "cells").is_dir() else ""
        raise ResultsError(f"{run_dir}: not a finished results folder: manifest.json is missing{hint}")
    if not (run_dir / "summary.csv").is_file():
        raise ResultsError(f"{run_dir}: the run is unfinished: summary.csv is missing")
    return read_document(run_dir / "manifest.json")


def _table(path: Path, optional: bool = False) -> pd.DataFrame:
    if optional and not path.is_file():
        return pd.DataFrame(columns=["cell_id", "arm", "metric"])
    try:
        return pd.read_csv(path, dtype={"cell_id": str, "arm": str}, keep_default_na=True, low_memory=False)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read ({_reason(error)})") from error


def _scenario(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text(encoding="utf-8")
        parsed = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ResultsError(f"{path}: cannot be read ({_reason(error)})") from error
    return (parsed if isinstance(parsed, dict) else {}), text


def _arms(summary: pd.DataFrame, manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[str, ...]:
    """All arms in the order of the scenario, the baseline first."""
    run = list(dict.fromkeys(summary["arm"]))
    declared = [str(arm) for arm in manifest.get("arms", None) or scenario.get("arms", None) or run]
    arms = [*(arm for arm in declared if arm in run), *(arm for arm in run if arm not in declared)]
    baseline = manifest.get("baseline", scenario.get("baseline"))
    if baseline not in arms and "is_baseline" in summary:
        flagged = summary.loc[summary["is_baseline"].astype(str).str.lower() == "true", "arm"]
        baseline = flagged.iloc[0] if len(flagged) else arms[0]
    first = str(baseline) if baseline in arms else arms[0]
    return (first, *(arm for arm in arms if arm != first))


def _level(values: Sequence[float], confidence: float) -> Level | None:
    if not values:
        return None
    found = mean_interval(values, confidence)
    return Level(found.estimate, found.low, found.high, found.num)


def _ratio(row: Mapping[Any, Any]) -> Ratio:
    def number(key: str) -> float | None:
        value = row.get(key)
        return None if value is None or pd.isna(value) else float(value)

    verdict = str(row.get("verdict"))
    return Ratio(
        speedup=number("speedup") or float("nan"),
        low=number("ci_low"),
        high=number("ci_high"),
        n=int(number("num_pairs") or 0),
        verdict=verdict if verdict in ("better", "worse") else "not resolved",
    )


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0]
