"""Measured step times from a CSV file: reading it strictly. Used by `table`."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.csv_table import Cells, Problems, csv_columns, csv_rows, found, numbers
from sim.text_file import read_text, refuse

#: Units that the name of the time column may state.
TIME_COLUMNS = {"time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0}
#: Whole-number columns with the range that is allowed. New tokens are 1 + drafts; nothing drafts more than 64.
COUNT_COLUMNS = {"num_seqs": (1, 65_536), "new_tokens_per_seq": (1, 65), "context_tokens": (0, 10_000_000)}
#: What a row may measure; `target` where the file has no such column.
KINDS = ("target", "draft")
#: A pass of a model on a GPU takes no less and no more, in seconds: what lies outside is in another unit.
SHORTEST_S, LONGEST_S = 10e-6, 100.0


class StepTime(NamedTuple):
    """One measured step: every sequence has the same new tokens and context.

    Attributes:
        num_seqs: sequences in the step.
        new_tokens: of each sequence: 1 in plain decode, 1 + K when K drafts are verified.
        context_tokens: tokens of each sequence that were cached before the step.
        seconds: how long it took.
        line: where in the file.
    """

    num_seqs: int
    new_tokens: int
    context_tokens: int
    seconds: float
    line: int


class StepTimes(NamedTuple):
    """The rows of a file by what they measure."""

    target: tuple[StepTime, ...]
    draft: tuple[StepTime, ...]


def read_step_times(path: Path) -> StepTimes:
    """The measured steps of a CSV file (see docs/background/cost-model.md, "A table of measured steps").

    Raises:
        ScenarioError: everything wrong with the file, by line.
    """
    return _parsed(read_text(path)[0], path)


@lru_cache(maxsize=8)
def _parsed(text: str, path: Path) -> StepTimes:
    if not text.strip():
        raise refuse(path, "is empty")
    header, rows = csv_rows(text.rstrip(), path)
    names = [name.lower() for name in header]
    time_column = _check_header(names, path)
    if not rows:
        raise refuse(path, "has a header but no measured step", 1)
    problems = Problems(path)
    cells = dict(zip(names, csv_columns(text.rstrip(), header, rows, problems), strict=True))
    seconds = _seconds(cells[time_column], TIME_COLUMNS[time_column], problems)
    counts = [_counts(cells[name], *limits, problems) for name, limits in COUNT_COLUMNS.items()]
    kinds = _kinds(cells.get("kind"), len(seconds), problems)
    problems.raise_if_any()
    lines = cells[time_column].lines
    steps = [StepTime(*row) for row in zip(*counts, seconds, lines, strict=True)]
    times = StepTimes(*(tuple(s for s, kind in zip(steps, kinds, strict=True) if kind == which) for which in KINDS))
    if not times.target:
        raise refuse(path, "measures no step of the target: no row of kind target")
    return times


def _check_header(names: list[str], path: Path) -> str:
    """The name of the time column."""
    times = [name for name in names if name in TIME_COLUMNS]
    allowed = [*COUNT_COLUMNS, *TIME_COLUMNS, "kind"]
    missing = [name for name in COUNT_COLUMNS if name not in names]
    unknown = [name for name in names if name not in allowed]
    faults = [f"missing {', '.join(missing)}"] if missing else []
    faults += [f"unknown {', '.join(map(found, unknown))}"] if unknown else []
    if len(times) != 1 or len(set(names)) != len(names):
        faults.append(f"exactly one of {', '.join(TIME_COLUMNS)} and no column twice")
    if faults:
        needed = ",".join(COUNT_COLUMNS)
        raise refuse(path, f"columns: {'; '.join(faults)}. Expected {needed},time_us and optionally kind", 1)
    return times[0]


def _seconds(cells: Cells, unit_s: float, problems: Problems) -> list[float]:
    seconds = [value * unit_s for value in numbers(cells, problems, "a finite time").tolist()]
    for line, text, value in zip(cells.lines, cells.text, seconds, strict=True):
        if np.isfinite(value) and not SHORTEST_S <= value <= LONGEST_S:
            limits = f"{SHORTEST_S * 1e6:.0f} us to {LONGEST_S:.0f} s"
            problems.add(line, cells.name, f"expected {limits} for a step, found {text.strip()}; is the unit right?")
    return seconds


def _counts(cells: Cells, least: int, most: int, problems: Problems) -> list[int]:
    values = numbers(cells, problems, f"a whole number from {least} to {most:,}").tolist()
    for line, text, value in zip(cells.lines, cells.text, values, strict=True):
        if np.isfinite(value) and (value != int(value) or not least <= value <= most):
            problems.add(line, cells.name, f"expected a whole number from {least} to {most:,}, found {found(text)}")
    return [int(value) if np.isfinite(value) else least for value in values]


def _kinds(cells: Cells | None, count: int, problems: Problems) -> list[str]:
    if cells is None:
        return ["target"] * count
    kinds = [text.strip() or "target" for text in cells.text]
    for line, kind in zip(cells.lines, kinds, strict=True):
        if kind not in KINDS:
            problems.add(line, "kind", f"expected {' or '.join(KINDS)}, found {found(kind)}")
    return kinds


def check_units(path: Path, steps: Iterable[StepTime], priced_s: Callable[[StepTime], float], most: float) -> None:
    """Compare every row with another model of the same deployment.

    Raises:
        ScenarioError: a time is over `most` times longer or shorter than `priced_s` says, so its unit must be wrong.
    """
    problems = Problems(path)
    for step in steps:
        expected = priced_s(step)
        if expected and not expected / most <= step.seconds <= expected * most:
            message = (
                f"{step.seconds * 1e3:.4g} ms, where the fallback says {expected * 1e3:.4g} ms; is the unit right?"
            )
            problems.add(step.line, "", message)
    problems.raise_if_any()
