"""Strict reading of CSV tables: every fault with its line. Used for request traces and measured step times."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from sim.errors import Problem, ScenarioError
from sim.rng import Floats
from sim.text_file import refuse

#: Problems reported in full; the rest is counted.
MAX_PROBLEMS = 20

T = TypeVar("T")

_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


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


def csv_rows(body: str, path: Path) -> tuple[list[str], list[list[str]]]:
    """Header (names stripped) and rows.

    Raises:
        ScenarioError: broken quoting, with the line.
    """
    reader = csv.reader(io.StringIO(body, newline=""), strict=True)
    try:
        header, *rows = list(reader)
    except csv.Error as error:
        raise refuse(path, f"not a CSV line: {error}", reader.line_num) from None
    return [name.strip() for name in header], rows


def csv_columns(body: str, header: list[str], rows: list[list[str]], problems: Problems) -> list[Cells]:
    """The columns in the order of the header; rows with another number of fields are reported and left out."""
    lines: Sequence[int] = range(2, len(rows) + 2)
    wrong = [index for index, row in enumerate(rows) if len(row) != len(header)]
    for index in wrong:
        message = f"expected {len(header)} fields, found {len(rows[index])} (an empty or cut line, or decimal commas?)"
        problems.add(lines[index], "", message)
    if wrong:
        dropped = set(wrong)
        lines = [line for index, line in enumerate(lines) if index not in dropped]
        rows = [row for index, row in enumerate(rows) if index not in dropped]
    plain = body.isascii() and body.count("_") == sum(name.count("_") for name in header)
    table = list(zip(*rows, strict=True)) or [()] * len(header)
    return [Cells(name, text, lines, plain) for name, text in zip(header, table, strict=True)]


def numbers(cells: Cells, problems: Problems, meaning: str) -> Floats:
    """A column of finite numbers; NaN stands where a problem was reported ("expected `meaning`, found ...")."""

    def parse(cell: str) -> float:
        value = float(cell) if _NUMBER.fullmatch(cell) else np.inf
        if not np.isfinite(value):
            raise ValueError(meaning)
        return value

    try:
        if not cells.plain:
            raise ValueError
        values = np.array(list(map(float, cells.text)))
        if not np.isfinite(values).all():
            raise ValueError
    except ValueError:
        values = np.array(convert(cells, problems, parse, np.nan))
    return values


def convert(cells: Cells, problems: Problems, parse: Callable[[str], T], instead: T) -> list[T]:
    """A column cell by cell; `instead` stands where `parse` raised ValueError(what was expected), which is reported."""
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
