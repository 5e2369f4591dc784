"""CSV tables of measured times, recognised by their columns; all problems of all files at once, with row numbers.

A row's number is its line in the file: the header is row 1. Times are microseconds.
"""

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.problems import Problems
from sim.catalogue import normalised
from sim.hardware.catalogue import gpu_ids

Floats = NDArray[np.float64]


class Form(NamedTuple):
    """One kind of table.

    Attributes:
        texts: columns kept as they are.
        sizes: columns with whole numbers of at least 1.
        counts: columns with whole numbers of at least 0.
        optional: text columns that may be missing; then every row has "".
    """

    name: str
    texts: tuple[str, ...]
    sizes: tuple[str, ...]
    counts: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("stack", "kernel")

    @property
    def required(self) -> tuple[str, ...]:
        """Every column that must be there."""
        return ("gpu", *self.texts, *self.sizes, *self.counts, "time_us")


_HEADS = ("q_heads", "kv_heads", "head_dim")

#: Most specific first: the columns of a later form may be part of an earlier one.
FORMS = (
    Form("step", ("model", "dtype", "kv_dtype"), ("tp", "batch"), ("context", "num_draft_tokens")),
    Form("moe", ("dtype", "routing"), ("tokens", "hidden", "inter", "experts", "topk", "tp", "ep")),
    Form("attention_mixed", (), _HEADS, ("prefill_q", "prefill_ctx", "n_decode", "decode_ctx")),
    Form("attention_verify", ("kv_dtype",), ("batch", "q_len", *_HEADS), ("context",)),
    Form("attention_decode", ("kv_dtype",), ("batch", "context", *_HEADS)),
    Form("attention_prefill", (), ("batch", "q_len", *_HEADS)),
    Form("collectives", ("op",), ("n_gpus", "bytes")),
    Form("layers", ("model", "layer"), ("tp", "tokens")),
    Form("gemm", ("dtype",), ("m", "n", "k")),
)


class Table(NamedTuple):
    """The usable rows of one file.

    Attributes:
        file: name without folders.
        form: name of its `Form`.
        rows: row numbers, for messages.
        texts, numbers: columns by name; all as long as `rows`. `numbers["time_us"]` is what was measured.
    """

    file: str
    form: str
    rows: tuple[int, ...]
    texts: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, Floats]

    def where(self, keep: Sequence[bool] | NDArray[np.bool_]) -> "Table":
        """Only the rows marked in `keep`."""
        mask = np.asarray(keep, dtype=bool)
        chosen = np.flatnonzero(mask)
        texts = {name: tuple(column[i] for i in chosen) for name, column in self.texts.items()}
        numbers = {name: column[mask] for name, column in self.numbers.items()}
        return Table(self.file, self.form, tuple(self.rows[i] for i in chosen), texts, numbers)


class Source(NamedTuple):
    """A file that was read, for provenance."""

    file: str
    sha256: str


def read_source(path: Path, problems: Problems) -> tuple[Source, str] | None:
    """The text of a file and its checksum; None, and a problem noted, where it cannot be read."""
    try:
        data = path.read_bytes()
        return Source(path.name, hashlib.sha256(data).hexdigest()), data.decode("utf-8-sig")
    except OSError as error:
        problems.add(str(path), "", f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError:
        problems.add(str(path), "", "is not UTF-8 text")
    return None


def parse_table(file: str, text: str, problems: Problems) -> Table | None:
    """One CSV as a table; None, and problems noted, where it cannot be one. Rows with problems are left out."""
    lines = csv.reader(text.splitlines(), strict=True)
    try:
        header = [name.strip() for name in next(lines, [])]
        body = [(lines.line_num, cells) for cells in lines if cells]
    except csv.Error as error:
        problems.add(file, "", f"is not a CSV: {error}", [lines.line_num])
        return None
    form = _recognise(file, header, problems)
    if form is None:
        return None
    ragged = [row for row, cells in body if len(cells) != len(header)]
    if ragged:
        problems.add(file, "", f"not {len(header)} cells as in the header", ragged)
    body = [(row, cells) for row, cells in body if len(cells) == len(header)]
    if not body:
        problems.add(file, "", "has no rows")
        return None
    return _columns(file, form, header, body, problems)


def _recognise(file: str, header: list[str], problems: Problems) -> Form | None:
    """The first form whose columns are all there; otherwise the nearest one says what is missing."""
    found = set(header)
    for form in FORMS:
        if found.issuperset(form.required):
            return form
    nearest = min(FORMS, key=lambda form: (len(set(form.required) - found), -len(form.required)))
    missing = [name for name in nearest.required if name not in found]
    if len(missing) * 2 > len(nearest.required):
        known = ", ".join(sorted(form.name for form in FORMS))
        problems.add(file, "", f"columns of no known table ({known}); found: {', '.join(header) or 'none'}")
        return None
    other_units = [name for name in header if name.startswith("time") and name != "time_us"]
    hint = f"; {other_units[0]} must be converted to time_us" if "time_us" in missing and other_units else ""
    problems.add(file, "", f"looks like {nearest.name} but lacks the columns {', '.join(missing)}{hint}")
    return None


def _columns(file: str, form: Form, header: list[str], body: list[tuple[int, list[str]]], problems: Problems) -> Table:
    rows = tuple(row for row, _ in body)
    cells = {name: tuple(line[i].strip() for _, line in body) for i, name in enumerate(header)}
    empty = ("",) * len(rows)
    texts = {name: cells.get(name, empty) for name in ("gpu", *form.texts, *form.optional)}
    numbers = {name: np.array(list(map(_number, cells[name]))) for name in (*form.sizes, *form.counts, "time_us")}
    good = np.ones(len(rows), bool)
    for name, reason, bad in _faults(form, texts, numbers):
        if bad.any():
            problems.add(file, name, reason, (rows[i] for i in np.flatnonzero(bad)))
            good &= ~bad
    return Table(file, form.name, rows, texts, numbers).where(good)


def _faults(
    form: Form, texts: Mapping[str, tuple[str, ...]], numbers: Mapping[str, Floats]
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """(column, reason, which rows) of everything that a single cell can have wrong."""
    known = {normalised(gpu) for gpu in gpu_ids()}
    for name in sorted(set(texts["gpu"])):
        if normalised(name) not in known:
            yield "gpu", f"unknown GPU {name!r} (see `specsim catalog gpus`)", np.array(texts["gpu"]) == name
    for name in form.texts:
        yield name, "is empty", np.array(texts[name]) == ""
    for name, column in numbers.items():
        if name == "time_us":
            yield name, "not a finite time above 0", ~(np.isfinite(column) & (column > 0))
        else:
            least = 1 if name in form.sizes else 0
            with np.errstate(invalid="ignore"):
                yield name, f"not a whole number of at least {least}", ~((column >= least) & (column % 1 == 0))


def _number(cell: str) -> float:
    """NaN for what is no finite number."""
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
