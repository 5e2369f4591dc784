"""CSV tables of measured times, as columns; rows of one GPU and kernel are one fit."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import Floats
from sim.errors import CalibrationError

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
            raise CalibrationError(f"{self.name}: row {row + 2}: {column} is {str(values[row])!r}, not a number") from None

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


def read_table(path: Path, required: Sequence[str]) -> Table:
    """Read a CSV with a header.

    Raises:
        CalibrationError: unreadable, without rows, ragged, or columns missing; names what is there.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CalibrationError(f"{path}: {error}") from None
    header, body = (rows[0], [row for row in rows[1:] if row]) if rows else ([], [])
    missing = [name for name in required if name not in header]
    if missing:
        raise CalibrationError(f"{path}: missing columns {', '.join(missing)}; found {', '.join(header) or 'none'}")
    ragged = next((i for i, row in enumerate(body) if len(row) != len(header)), None)
    if ragged is not None:
        raise CalibrationError(f"{path}: row {ragged + 2} has {len(body[ragged])} fields, the header {len(header)}")
    if not body:
        raise CalibrationError(f"{path}: no rows")
    columns = zip(*body, strict=True)
    return Table(path.name, {name: np.array(values, dtype=np.str_) for name, values in zip(header, columns, strict=True)})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
