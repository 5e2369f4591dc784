"""Rows of published measurements, speculative against plain decoding: `published/*.csv`, read strictly."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sim.csv_table import Cells, Problems, convert, csv_columns, csv_rows
from sim.text_file import read_text, refuse
from sim.validation.stated_metric import metric

_TEXT = (
    "case_id", "source", "table_or_section", "target_model", "gpu", "n_gpus", "engine", "method", "k_or_tree",
    "dataset", "input_len", "output_len", "batch_or_concurrency", "metric", "notes", "acceptance_rate", "temperature",
)  # fmt: skip
_NUMBERS = ("plain_value", "spec_value", "speedup", "mean_accepted_len")
#: The columns of a table; others may be there and are not used.
COLUMNS = (*_TEXT, *_NUMBERS, "trust")
#: Those that a table must have; a missing one of the others is like a blank one.
REQUIRED = (
    "case_id",
    "source",
    "target_model",
    "gpu",
    "engine",
    "method",
    "k_or_tree",
    "batch_or_concurrency",
    "trust",
)

#: Rows that another simulator predicted, told by their metric; compared with ours, never scored.
SIMULATED = "SIMULATED"


@dataclass(frozen=True)
class PublishedRow:
    """One published comparison. Text is as stated by the source; numbers that it leaves out are None.

    Attributes:
        table: table or section of the source.
        load: static batch, closed-loop concurrency or `n QPS`.
        acceptance_rate: as published; sources mean different things by it.
        tokens_per_step: mean tokens emitted per verify step, bonus token included.
        trust: 5 printed table or vector figure with a known protocol, to 2 simulated or a sample or two.
    """

    case_id: str
    source: str
    table: str
    target_model: str
    gpu: str
    n_gpus: str
    engine: str
    method: str
    k_or_tree: str
    dataset: str
    input_len: str
    output_len: str
    load: str
    metric: str
    notes: str
    acceptance_rate: str
    temperature: str
    plain_value: float | None
    spec_value: float | None
    speedup: float | None
    tokens_per_step: float | None
    trust: int

    @property
    def simulated(self) -> bool:
        """Whether this is the figure of another simulator."""
        return self.metric.startswith(SIMULATED)

    @property
    def measured_speedup(self) -> float | None:
        """As published, else the ratio of the two arms; above 1 = speculation is faster.

        Raises:
            UnrunnableError: it is not stated, and the metric does not say which arm is the faster one.
        """
        if self.speedup is not None or self.plain_value is None or self.spec_value is None:
            return self.speedup
        ratio = self.spec_value / self.plain_value
        return 1 / ratio if metric(self.metric).is_time else ratio


def read_published(folder: Path) -> list[PublishedRow]:
    """Rows of all tables in `folder`/published (or `folder` itself), in order of file and line.

    Raises:
        ScenarioError: a table is malformed or a case is there twice; every fault with its line.
    """
    there = folder / "published"
    known: dict[str, str] = {}
    return [row for path in sorted((there if there.is_dir() else folder).glob("*.csv")) for row in _read(path, known)]


def _read(path: Path, known: dict[str, str]) -> Iterable[PublishedRow]:
    """Rows of one file; none where it is a table of another kind (no column `case_id`). `known`: where each case is."""
    text, _ = read_text(path)
    header, body = csv_rows(text, path) if text.strip() else ([], [])
    if "case_id" not in header:
        return []
    if missing := [name for name in REQUIRED if name not in header]:
        raise refuse(path, f"missing columns {', '.join(missing)}")
    problems = Problems(path)
    columns = {cells.name: cells for cells in csv_columns(text, header, _filled(body), problems)}
    blank = Cells("", [""] * len(columns["case_id"].text), columns["case_id"].lines, True)
    words = [columns.get(name, blank).text for name in _TEXT]
    numbers = [convert(columns.get(name, blank), problems, _positive, None) for name in _NUMBERS]
    _check_names(path, columns["case_id"], known, problems)
    trust = convert(columns["trust"], problems, _trust, 0)
    problems.raise_if_any()
    cells = zip(*([one.strip() for one in column] for column in words), *numbers, trust, strict=True)
    return [PublishedRow(*cell) for cell in cells]


def _check_names(path: Path, cells: Cells, known: dict[str, str], problems: Problems) -> None:
    """Every case has a name of its own, over all files."""
    for line, cell in zip(cells.lines, cells.text, strict=True):
        name, here = cell.strip(), f"{path.name}:{line}"
        if not name:
            problems.add(line, cells.name, "expected a name")
        elif (first := known.setdefault(name, here)) != here:
            problems.add(line, cells.name, f"{name!r} is already at {first}")


def _filled(rows: list[list[str]]) -> list[list[str]]:
    """Without blank lines at the end."""
    while rows and not any(rows[-1]):
        rows = rows[:-1]
    return rows


def _positive(cell: str) -> float | None:
    """A positive number, or nothing."""
    if not cell.strip():
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise ValueError("a positive number or nothing")
    return value


def _trust(cell: str) -> int:
    if cell.strip() not in {"1", "2", "3", "4", "5"}:
        raise ValueError("a trust of 1 to 5")
    return int(cell)
