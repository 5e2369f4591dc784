"""Writing tables and documents safely: CSV, parquet and JSON without NaN, formulas or half-written files.

pyarrow is imported when a table is written, so that importing this module is cheap.
"""

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.errors import ResultsError

Columns = Mapping[str, NDArray[np.generic]]
Rows = Sequence[Mapping[str, object]]

#: A cell that starts with one of these is run as a formula by spreadsheets (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class StorageError(ResultsError):
    """The disk is full, or failed, in the middle of a run."""

    exit_code = 5


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file so that it is there whole or not at all: temporary name, flush to disk, rename.

    Args:
        path: the file.
        data: its content.
        durable: wait until the disk has it.

    Raises:
        StorageError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"{path.name}: cannot be written ({error.strerror})") from error


def json_bytes(document: object, indent: int | None = 1) -> bytes:
    """Canonical JSON of plain data; NaN and infinity become null."""
    text = json.dumps(finite(document), indent=indent, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def finite(value: object) -> object:
    """The same data with None for every number that is not finite, and NumPy scalars as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def csv_bytes(rows: Rows, columns: Sequence[str]) -> bytes:
    """Rows as CSV, with a header even when there are none; None is an empty cell, texts cannot act as formulas."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    value = finite(value)
    if value is None:
        return ""
    if isinstance(value, list | dict):
        value = json.dumps(value)
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def parquet_bytes(columns: Columns) -> bytes:
    """Columns as a parquet file with zstd; NaN stays NaN."""
    import pyarrow as pa

    return _parquet(pa.table({name: pa.array(values) for name, values in columns.items()}))


def parquet_rows_bytes(rows: Rows, columns: Sequence[str]) -> bytes:
    """Rows as a parquet file; columns of nothing but None are stored as numbers."""
    import pyarrow as pa

    arrays = {}
    for name in columns:
        values = [finite(row.get(name)) for row in rows]
        nothing = all(value is None for value in values)
        arrays[name] = pa.array(values, pa.float64()) if nothing else pa.array(_of_one_type(values))
    return _parquet(pa.table(arrays))


def _of_one_type(values: list[object]) -> list[object]:
    """Texts when the values mix kinds (a field varied over numbers and words)."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
    if len(kinds) > 1 or kinds & {list, dict}:
        return [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
    return values


def _kind(value: object) -> type:
    return type(value)


def _parquet(table: "object") -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
