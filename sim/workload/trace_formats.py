"""Formats of request traces: Azure CSV, Mooncake JSONL and our own CSV; told apart by header. Used by `traces`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sim.csv_table import Problems, csv_columns, csv_rows, found
from sim.rng import Floats, Streams
from sim.text_file import refuse
from sim.workload.prefixes import HASH_BLOCK_TOKENS, BlockHashes
from sim.workload.requests import Ints
from sim.workload.trace_columns import (
    Columns,
    check_lengths,
    dates,
    is_date,
    nanoseconds,
    seconds,
    whole_numbers,
)

TraceFormat = Literal["auto", "azure", "mooncake", "csv", "streams"]

#: Header of each CSV format: time, prompt tokens, output tokens (any order, any case).
CSV_HEADERS = {
    "csv": ("arrival_s", "input_tokens", "output_tokens"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
}
#: Keys of a Mooncake line: milliseconds, prompt tokens, output tokens; block hashes (one per 512 tokens) are optional.
MOONCAKE_KEYS = ("timestamp", "input_length", "output_length")
_MOONCAKE_ALLOWED = {*MOONCAKE_KEYS, "hash_ids"}


def parse(text: str, path: Path, trace_format: TraceFormat, tick_s: float | None) -> Columns:
    """All requests of a trace file.

    Args:
        text: content of the file.
        path: for messages.
        trace_format: the format, or `auto`: JSON lines are Mooncake, CSV goes by its header.
        tick_s: resolution of the time stamps; see `spread_ticks`.

    Raises:
        ScenarioError: everything wrong with the file, by line.
    """
    body = text.rstrip()
    if not body:
        raise refuse(path, "is empty")
    is_json = body.lstrip().startswith("{")
    if trace_format != "auto" and is_json != (trace_format == "mooncake"):
        raise refuse(path, f"is not of format {trace_format}: it holds {'JSON lines' if is_json else 'no JSON'}", 1)
    columns, has_ticks = (_mooncake(body, path), True) if is_json else (_csv(body, path, trace_format), False)
    tick_ns = round(tick_s * 1e9) if tick_s is not None else tick_of(columns.arrival_ns) if has_ticks else 0
    return columns._replace(arrival_ns=spread_ticks(columns.arrival_ns, tick_ns))


def tick_of(arrival_ns: Ints) -> int:
    """Median gap between time stamps of which two or more requests share each on average; else 0."""
    stamps = np.unique(arrival_ns)
    if len(stamps) < 2 or 2 * len(stamps) > len(arrival_ns):
        return 0
    return int(np.median(np.diff(stamps)))


def spread_ticks(arrival_ns: Ints, tick_ns: int) -> Ints:
    """Spread the requests of one time stamp uniformly at random over a tick, or up to the next stamp.

    They keep their order; the numbers are always the same. Mooncake's stamps are 3 s apart, give or take 3 ms, with
    about ten requests each: taken literally they would be bursts.
    """
    if tick_ns <= 0:
        return arrival_ns
    stamps, stamp_of = np.unique(arrival_ns, return_inverse=True)
    widths = np.minimum(np.diff(stamps, append=stamps[-1] + tick_ns), tick_ns)
    uniforms: Floats = Streams(0).per_row("trace ticks", len(arrival_ns))
    order = np.lexsort((uniforms, stamp_of))
    return arrival_ns + (uniforms[order] * widths[stamp_of]).astype(np.int64)


def _csv(body: str, path: Path, trace_format: TraceFormat) -> Columns:
    header, rows = csv_rows(body, path)
    places = _places(header, path, trace_format)
    if not rows:
        raise refuse(path, "has a header but no requests", 1)
    problems = Problems(path)
    cells = csv_columns(body, header, rows, problems)
    time, prompt, output = (cells[place] for place in places)
    lines = time.lines
    times = dates(time, problems) if any(map(is_date, time.text[:10])) else seconds(time, problems)
    columns = Columns(
        nanoseconds(times, time.name, lines, problems), whole_numbers(prompt, problems), whole_numbers(output, problems)
    )
    problems.raise_if_any()
    return columns


def _places(header: list[str], path: Path, trace_format: TraceFormat) -> list[int]:
    """Where time, prompt and output stand in the header."""
    names = [name.lower() for name in header]
    for kind, expected in CSV_HEADERS.items():
        wanted = [name.lower() for name in expected]
        if trace_format in ("auto", kind) and sorted(names) == sorted(wanted):
            return [names.index(name) for name in wanted]
    allowed = [f"{','.join(CSV_HEADERS[kind])} ({kind})" for kind in CSV_HEADERS if trace_format in ("auto", kind)]
    hint = "; separate fields by commas" if len(header) == 1 and any(mark in header[0] for mark in ";\t") else ""
    raise refuse(path, f"found the columns {found(','.join(header))}; expected {' or '.join(allowed)}{hint}", 1)


def _mooncake(body: str, path: Path) -> Columns:
    problems = Problems(path)
    lines = body.split("\n")
    requests = [_mooncake_request(text, line, problems) for line, text in enumerate(lines, 1)]
    problems.raise_if_any()
    hashed = [request[3] for request in requests]
    for line, found_here in enumerate(hashed, 1):
        if (found_here is None) != (hashed[0] is None):
            problems.add(line, "hash_ids", "given in some lines and not in others")
    time, prompt, output = (np.array(column) for column in list(zip(*requests, strict=True))[:3])
    numbers = range(1, len(lines) + 1)
    columns = Columns(
        nanoseconds(time / 1e3, "timestamp", numbers, problems),
        check_lengths(prompt.astype(np.int64), "input_length", numbers, problems),
        check_lengths(output.astype(np.int64), "output_length", numbers, problems),
        None if hashed[0] is None else BlockHashes.of(ids or [] for ids in hashed),
    )
    problems.raise_if_any()
    return columns


def _mooncake_request(text: str, line: int, problems: Problems) -> tuple[float, int, int, list[int] | None]:
    """One line as (milliseconds, prompt, output, hashes); zeros where it is wrong."""
    try:
        request = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        problems.add(line, "", f"not a JSON object: {error}")
        return 0.0, 0, 0, None
    if not isinstance(request, dict):
        problems.add(line, "", f"expected a JSON object, found {found(text)}")
        return 0.0, 0, 0, None
    wrong = list(_mooncake_faults(request))
    for key, message in wrong:
        problems.add(line, key, message)
    if wrong:
        return 0.0, 0, 0, None
    return float(request["timestamp"]), request["input_length"], request["output_length"], request.get("hash_ids")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _mooncake_faults(request: dict[str, Any]) -> list[tuple[str, str]]:
    """(key, message) of what is wrong with a line; large numbers are cut to what 64 bits hold."""
    faults = [(key, "missing") for key in MOONCAKE_KEYS if key not in request]
    for key, value in request.items():
        if key not in _MOONCAKE_ALLOWED:
            faults.append((key, f"unknown key; allowed: {', '.join((*MOONCAKE_KEYS, 'hash_ids'))}"))
        elif key != "hash_ids" and (isinstance(value, bool) or not isinstance(value, int | float)):
            faults.append((key, f"expected a number, found {found(str(value))}"))
        elif key in MOONCAKE_KEYS[1:] and not isinstance(value, int):
            faults.append((key, f"expected a whole number of tokens, found {value}"))
        elif key != "hash_ids" and abs(value) > 1e15:
            faults.append((key, f"too large: {found(str(value))}"))
    return faults or list(_hash_faults(request))


def _hash_faults(request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same for the block hashes, when all else is right."""
    ids = request.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(number) is int and 0 <= number < 2**63 for number in ids):
        yield "hash_ids", f"expected a list of whole numbers from 0 on, found {found(str(ids))}"
    elif "hash_ids" in request and len(ids) != -(-request["input_length"] // HASH_BLOCK_TOKENS):
        blocks = f"{request['input_length']} tokens are {-(-request['input_length'] // HASH_BLOCK_TOKENS)} blocks"
        yield "hash_ids", f"expected one hash per {HASH_BLOCK_TOKENS} tokens, found {len(ids)}: {blocks}"
