"""CSV tables of measured times, as columns; rows of one GPU and kernel are one fit."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import Floats
from sim.csv_table import Cells, Problems, convert, csv_rows
from sim.errors import CalibrationError
from sim.text_file import read_text

Key = tuple[str, ...]


class Table(NamedTuple):
    """Columns by name, as text; `numbers` parses one. All columns have the same length."""

    name: str
    columns: dict[str, NDArray[np.str_]]

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def text(self, column: str) -> NDArray[np.str_]:
        """A column as text."""
        return self.columns[column]

    def numbers(self, column: str) -> Floats:
        """A column as floats.

        Raises:
            CalibrationError: a value is not a number; the row is named.
        """
        values = self.columns[column]
        try:
            return values.astype(np.float64)
        except ValueError:
            row = next(i for i, value in enumerate(values) if not _is_number(str(value)))
            found = f"{column} is {str(values[row])!r}, not a number"
            raise CalibrationError(f"{self.name}: row {row + 2}: {found}") from None

    def optional_numbers(self, column: str) -> Floats:
        """A column as floats, NaN where a cell is blank or the column is not there."""
        cells = self.columns.get(column)
        if cells is None:
            return np.full(len(self), np.nan)
        return np.array([float(cell) if cell.strip() else np.nan for cell in cells.tolist()])

    def where(self, mask: NDArray[np.bool_]) -> "Table":
        """The rows where `mask` holds."""
        return Table(self.name, {name: values[mask] for name, values in self.columns.items()})

    def groups(self, columns: Sequence[str]) -> Iterator[tuple[Key, "Table"]]:
        """The rows of every combination of values of `columns`, in sorted order."""
        keys = self.keys(columns)
        for key in sorted(set(keys)):
            yield key, self.where(np.array([own == key for own in keys]))

    def keys(self, columns: Sequence[str]) -> list[Key]:
        """The values of `columns`, row by row."""
        return [tuple(map(str, row)) for row in zip(*(self.columns[c] for c in columns), strict=True)]


def read_table(
    path: Path,
    required: Sequence[str],
    numbers: Sequence[str] = (),
    counts: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Table:
    """Read a CSV with a header. Blank lines are passed over.

    Args:
        path: the file.
        required: columns that must be there.
        numbers: columns of which every cell must be a whole number of at least 1, or, for times and lengths (`_us`,
            `_ms`, `_length`), a finite number above 0; those that the table does not have are not looked at.
        counts: columns of finite numbers of at least 0.
        optional: the same, of columns whose cells may be blank.

    Raises:
        CalibrationError: without rows, ragged, or columns missing; names what is there.
        ScenarioError: unreadable, or cells that are no numbers: file, line and column of each.
    """
    text, _ = read_text(path)
    header, *rows = _rows(text, path)
    body = [(line, row) for line, row in enumerate(rows, start=2) if row]
    missing = [name for name in required if name not in header]
    if missing:
        raise CalibrationError(f"{path}: missing columns {', '.join(missing)}; found {', '.join(header) or 'none'}")
    ragged = next(((line, row) for line, row in body if len(row) != len(header)), None)
    if ragged is not None:
        raise CalibrationError(f"{path}: row {ragged[0]} has {len(ragged[1])} fields, the header {len(header)}")
    if not body:
        raise CalibrationError(f"{path}: no rows")
    lines = [line for line, _ in body]
    cells = dict(zip(header, zip(*(row for _, row in body), strict=True), strict=True))
    checks = {name: _positive if name.endswith(_REALS) else _size for name in numbers}
    checks |= {**dict.fromkeys(counts, _amount), **dict.fromkeys(optional, _blank)}
    problems = Problems(path)
    for name, check in checks.items():
        convert(Cells(name, cells.get(name, ()), lines if name in cells else (), False), problems, check, 0.0)
    problems.raise_if_any()
    return Table(path.name, {name: np.array(values, dtype=np.str_) for name, values in cells.items()})


def _rows(text: str, path: Path) -> list[list[str]]:
    if not text.strip():
        return [[]]
    header, rows = csv_rows(text, path)
    return [header, *rows]


#: Endings of columns that need not hold whole numbers.
_REALS = ("_us", "_ms", "_length")


def _size(cell: str) -> float:
    if not (_is_number(cell) and 1 <= float(cell) < math.inf and float(cell).is_integer()):
        raise ValueError("a whole number of at least 1")
    return float(cell)


def _amount(cell: str) -> float:
    if not (_is_number(cell) and 0 <= float(cell) < math.inf):
        raise ValueError("a finite number of at least 0")
    return float(cell)


def _positive(cell: str) -> float:
    if not (_is_number(cell) and 0 < float(cell) < math.inf):
        raise ValueError("a finite number above 0")
    return float(cell)


def _blank(cell: str) -> float:
    return _amount(cell) if cell.strip() else 0.0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
