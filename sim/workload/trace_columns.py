"""Columns of a trace: strict conversion, row by row only where something is wrong. Used by `trace_formats`."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.csv_table import Cells, Problems, convert, numbers
from sim.rng import Floats
from sim.workload.lengths.base import MAX_TOKENS
from sim.workload.prefixes import BlockHashes
from sim.workload.requests import Ints

#: Latest arrival, in seconds from the start of the trace (over 3 years).
MAX_SECONDS = 1e8

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,12}\s*")
_DATE = re.compile(
    r"\s*((?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)(?:Z|\+00:00)?\s*"
)
_NO_DATE = np.iinfo(np.int64).min


class Columns(NamedTuple):
    """Requests of a trace file in file order: nanoseconds from the start of the trace, lengths in tokens, hashes."""

    arrival_ns: Ints
    input_tokens: Ints
    output_tokens: Ints
    block_hashes: BlockHashes | None = None


def whole_numbers(cells: Cells, problems: Problems) -> Ints:
    """A column of token counts, 1..MAX_TOKENS; 1 stands where a problem was reported."""
    try:
        if not cells.plain:
            raise ValueError
        values = np.array(list(map(int, cells.text)), np.int64)
    except (ValueError, OverflowError):
        values = np.array(convert(cells, problems, _whole, 1), np.int64)
    return check_lengths(values, cells.name, cells.lines, problems)


def check_lengths(values: Ints, name: str, lines: Sequence[int], problems: Problems) -> Ints:
    """Report lengths outside 1..MAX_TOKENS."""
    wrong = np.flatnonzero((values < 1) | (values > MAX_TOKENS))
    for index in wrong.tolist():
        problems.add(lines[index], name, f"expected 1 to {MAX_TOKENS:,} tokens, found {values[index]}")
    return values


def seconds(cells: Cells, problems: Problems) -> Floats:
    """A column of times in seconds; NaN stands where a problem was reported."""
    return numbers(cells, problems, "a finite number of seconds")


def is_date(cell: str) -> bool:
    """Whether a cell starts like a date rather than a number of seconds."""
    return re.match(r"\s*[0-9]{4}-", cell) is not None


def dates(cells: Cells, problems: Problems) -> Floats:
    """A column of UTC timestamps as seconds from the first one; NaN stands where a problem was reported."""
    stamps = np.array(convert(cells, problems, _date, _NO_DATE), np.int64)
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


def _whole(cell: str) -> int:
    if _WHOLE.fullmatch(cell) is None:
        raise ValueError("a whole number of tokens")
    return int(cell)


def _date(cell: str) -> int:
    """Nanoseconds since 1970."""
    match = _DATE.fullmatch(cell)
    if match is None:
        raise ValueError("a UTC time such as 2023-11-16 18:15:46.680590")
    try:
        return int(np.datetime64(match[1], "ns").astype(np.int64))
    except ValueError:
        raise ValueError("a date of the calendar") from None
