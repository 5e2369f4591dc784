"""Recorded acceptance sequences: reading the CSV files that `sequence_replay` names."""

import csv
import difflib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import numpy as np

from sim.acceptance.base import Counts, Ints, Tape
from sim.errors import ScenarioError
from sim.workload.requests import RequestTable

_COLUMNS = ("method", "accepted")


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded requests, sorted by output length (ties by prompt length where known, then in file order).

    Attributes:
        accepted: one array per request, by decode position: drafts that a step starting there would accept, bonus token
            not counted, clipped so that a step never runs past the end of the recorded output.
        proposed: likewise the drafts found there, or None when the drafter always proposes.
        decoded_tokens: (M,) decode positions per request: the output length less the token from prefill.
        prompt_tokens: (M,) prompt lengths; None when only outputs are paired.
    """

    accepted: tuple[Counts, ...]
    proposed: tuple[Counts, ...] | None
    decoded_tokens: Ints
    prompt_tokens: Ints | None = None

    def table(self) -> RequestTable:
        """The recorded requests as rows; prompts that are not known have 1 token."""
        count = len(self.accepted)
        zeros, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
        prompts = ones if self.prompt_tokens is None else self.prompt_tokens
        return RequestTable(zeros, prompts, self.decoded_tokens + 1, zeros, np.ones(count, dtype=np.bool_))

    def part(self, first: int, every: int) -> "Recording":
        """Every so many-th request from `first` on: parts of like output lengths, as requests are sorted by length."""
        chosen = slice(first, None, every)
        proposed = None if self.proposed is None else self.proposed[chosen]
        prompts = None if self.prompt_tokens is None else self.prompt_tokens[chosen]
        return Recording(self.accepted[chosen], proposed, self.decoded_tokens[chosen], prompts)

    def tape(self, max_draft_tokens: int) -> Tape:
        """The recorded requests as a tape over `table()`."""
        return joined(self.accepted, self.proposed, max_draft_tokens)


def joined(accepted: tuple[Counts, ...], proposed: tuple[Counts, ...] | None, max_draft_tokens: int) -> Tape:
    """A tape of whole rows: position 0 (the token from prefill) starts no step, decode positions follow."""
    first, limit = np.zeros(1, dtype=np.uint8), np.uint8(max_draft_tokens)

    def flat(rows: tuple[Counts, ...]) -> Counts:
        parts = [part for row in rows for part in (first, row)]
        return np.minimum(np.concatenate(parts), limit)

    return Tape(flat(accepted), None if proposed is None else flat(proposed))


@lru_cache(maxsize=8)
def read_recording(path: Path, method: str | None, include_degenerate: bool) -> Recording:
    """Read a file of columns method, accepted and optionally drafted, degenerate; gzip when the name ends in .gz.

    Raises:
        ScenarioError: the file is missing, is not such a table, or holds no usable request of `method`.
    """
    rows = [row for row in _rows(path, method) if include_degenerate or row[3] != "1"]
    sequences = [(_letters(path, line, "accepted", text), drafted, line) for line, text, drafted, _ in rows if text]
    if not sequences:
        raise ScenarioError(f"{path}: no usable request{f' of method {method!r}' if method else ''}")
    sequences.sort(key=lambda item: len(item[0]))
    accepted = tuple(_clipped(letters) for letters, _, _ in sequences)
    proposed = _proposed(path, sequences)
    if proposed is not None:
        accepted = tuple(np.minimum(a, p) for a, p in zip(accepted, proposed, strict=True))
    return Recording(accepted, proposed, np.array([len(a) for a in accepted], dtype=np.int64))


def _open(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="ascii") if path.suffix == ".gz" else path.open(encoding="ascii")


def recorded_methods(path: Path) -> tuple[str, ...]:
    """The methods that a file holds, sorted.

    Raises:
        ScenarioError: the file is missing or is not such a table.
    """
    return tuple(sorted({row["method"] or "" for row in _table(path)}))


def _rows(path: Path, method: str | None) -> Iterator[tuple[int, str, str, str]]:
    """(line, accepted, drafted, degenerate) of the rows of `method`."""
    chosen = _method(path, list(recorded_methods(path)), method)
    for line, row in enumerate(_table(path), start=2):
        if row["method"] == chosen:
            yield line, row["accepted"] or "", row.get("drafted") or "", row.get("degenerate") or "0"


@lru_cache(maxsize=2)
def _table(path: Path) -> list[dict[str, str]]:
    try:
        with _open(path) as file:
            table = list(csv.DictReader(file))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot read acceptance sequences: {error}") from error
    missing = [name for name in _COLUMNS if not table or name not in table[0]]
    if missing:
        raise ScenarioError(f"{path}: no column {' and no column '.join(missing)}; needed: {', '.join(_COLUMNS)}")
    return table


def _method(path: Path, found: list[str], method: str | None) -> str:
    if method in found:
        return str(method)
    if method is None and len(found) == 1:
        return found[0]
    near = difflib.get_close_matches(method or "", found, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    asked = "several methods recorded, name one" if method is None else f"no method {method!r}"
    raise ScenarioError(f"{path}: {asked}: {', '.join(found)}{hint}")


def _letters(path: Path, line: int, column: str, text: str) -> Counts:
    """`a` = 0, `b` = 1, ... as counts."""
    if not (text.isascii() and text.isalpha() and text.islower()):
        raise ScenarioError(f"{path}:{line}: {column} must be letters a-z, one per decode position")
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - np.uint8(ord("a"))


def _clipped(accepted: Counts) -> Counts:
    """A step with `a` drafts accepted emits a + 1 tokens, at most what is left of the recorded output."""
    left = np.arange(len(accepted) - 1, -1, -1)
    return np.minimum(accepted, left).astype(np.uint8)


def _proposed(path: Path, sequences: list[tuple[Counts, str, int]]) -> tuple[Counts, ...] | None:
    """Drafts found at each position when the file records them for all requests; None when for none."""
    if not any(drafted for _, drafted, _ in sequences):
        return None
    for letters, drafted, line in sequences:
        if len(drafted) != len(letters):
            raise ScenarioError(f"{path}:{line}: drafted has {len(drafted)} positions, accepted {len(letters)}")
    return tuple(_letters(path, line, "drafted", drafted) for _, drafted, line in sequences)
