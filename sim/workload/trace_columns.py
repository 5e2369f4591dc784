"""Columns of a trace: strict conversion, row by row only where something is wrong. Used by `trace_formats`."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from sim.errors import Problem, ScenarioError
from sim.rng import Floats
from sim.workload.lengths.base import MAX_TOKENS
from sim.workload.requests import Ints

#: Problems reported in full; the rest is counted.
MAX_PROBLEMS = 20
#: Latest arrival, in seconds from the start of the trace (over 3 years).
MAX_SECONDS = 1e8

T = TypeVar("T")

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,12}\s*")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_DATE = re.compile(
    r"\s*((?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)(?:Z|\+00:00)?\s*"
)
_NO_DATE = np.iinfo(np.int64).min


class Columns(NamedTuple):
    """Requests of a trace file in file order: nanoseconds from the start of the trace, and lengths in tokens."""

    arrival_ns: Ints
    input_tokens: Ints
    output_tokens: Ints


class Problems:
    """Collects what is wrong with a file, by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[tuple[int, str, str]] = []

    def add(self, line: int, column: str, message: str) -> None:
        """Something wrong in this line; `column` may be empty."""
        self._found.append((line, column, message))

    def raise_if_any(self) -> None:
        """Raise ScenarioError with the first MAX_PROBLEMS in order of lines, and how many more there are."""
        if not self._found:
            return
        found = sorted(self._found, key=lambda entry: entry[0])
        shown = [Problem(f"{self._path}:{line}", column, message) for line, column, message in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            shown.append(Problem(str(self._path), "", f"and {len(found) - MAX_PROBLEMS} more problems"))
        raise ScenarioError(shown)


class Cells(NamedTuple):
    """One column as text.

    Attributes:
        name: its header.
        text: the cells.
        lines: line of each cell in the file.
        plain: no cell can hold anything that Python's own number parsers take and we do not.
    """

    name: str
    text: Sequence[str]
    lines: Sequence[int]
    plain: bool


def whole_numbers(cells: Cells, problems: Problems) -> Ints:
    """A column of token counts, 1..MAX_TOKENS; 1 stands where a problem was reported."""
    try:
        if not cells.plain:
            raise ValueError
        values = np.array(list(map(int, cells.text)), np.int64)
    except (ValueError, OverflowError):
        values = np.array(_convert(cells, problems, _whole, 1), np.int64)
    return check_lengths(values, cells.name, cells.lines, problems)


def check_lengths(values: Ints, name: str, lines: Sequence[int], problems: Problems) -> Ints:
    """Report lengths outside 1..MAX_TOKENS."""
    wrong = np.flatnonzero((values < 1) | (values > MAX_TOKENS))
    for index in wrong.tolist():
        problems.add(lines[index], name, f"expected 1 to {MAX_TOKENS:,} tokens, found {values[index]}")
    return values


def seconds(cells: Cells, problems: Problems) -> Floats:
    """A column of times in seconds; NaN stands where a problem was reported."""
    try:
        if not cells.plain:
            raise ValueError
        values = np.array(list(map(float, cells.text)))
        if not np.isfinite(values).all():
            raise ValueError
    except ValueError:
        values = np.array(_convert(cells, problems, _number, np.nan))
    return values


def is_date(cell: str) -> bool:
    """Whether a cell starts like a date rather than a number of seconds."""
    return re.match(r"\s*[0-9]{4}-", cell) is not None


def dates(cells: Cells, problems: Problems) -> Floats:
    """A column of UTC timestamps as seconds from the first one; NaN stands where a problem was reported."""
    stamps = np.array(_convert(cells, problems, _date, _NO_DATE), np.int64)
    known = stamps != _NO_DATE
    first = stamps[np.argmax(known)]
    return np.where(known, (stamps - first) / 1e9, np.nan)


def nanoseconds(times_s: Floats, name: str, lines: Sequence[int], problems: Problems) -> Ints:
    """Times in file order as integers; reports times outside 0..MAX_SECONDS and times that fall."""
    wrong = np.flatnonzero((times_s < 0) | (times_s > MAX_SECONDS))
    for index in wrong.tolist():
        limits = f"expected 0 to {MAX_SECONDS:.0e} s from the start of the trace"
        problems.add(lines[index], name, f"{limits}, found {times_s[index]:.16g}")
    for index in (np.flatnonzero(np.diff(times_s) < 0) + 1).tolist():
        message = (
            f"{times_s[index]:.16g} s is before the row above ({times_s[index - 1]:.16g} s); sort the file by time"
        )
        problems.add(lines[index], name, message)
    usable = np.where(np.isfinite(times_s), np.clip(times_s, 0.0, MAX_SECONDS), 0.0)
    return np.rint(usable * 1e9).astype(np.int64)


def _convert(cells: Cells, problems: Problems, parse: Callable[[str], T], instead: T) -> list[T]:
    values: list[T] = []
    for line, cell in zip(cells.lines, cells.text, strict=True):
        try:
            values.append(parse(cell))
        except ValueError as error:
            problems.add(line, cells.name, f"expected {error}, found {found(cell)}")
            values.append(instead)
    return values


def found(cell: str) -> str:
    """A cell as quoted in messages."""
    return "nothing" if not cell.strip() else repr(cell) if len(cell) <= 40 else f"{cell[:40]!r}..."


def _whole(cell: str) -> int:
    if _WHOLE.fullmatch(cell) is None:
        raise ValueError("a whole number of tokens")
    return int(cell)


def _number(cell: str) -> float:
    value = float(cell) if _NUMBER.fullmatch(cell) else np.inf
    if not np.isfinite(value):
        raise ValueError("a finite number of seconds")
    return value


def _date(cell: str) -> int:
    """Nanoseconds since 1970."""
    match = _DATE.fullmatch(cell)
    if match is None:
        raise ValueError("a UTC time such as 2023-11-16 18:15:46.680590")
    try:
        return int(np.datetime64(match[1], "ns").astype(np.int64))
    except ValueError:
        raise ValueError("a date of the calendar") from None
