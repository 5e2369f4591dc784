"""The journal of an unfinished experiment: one checksummed line per finished run, so that a killed one can go on.

Append-only JSON lines. The first record says which experiment this is. A line counts when it is whole and its CRC-32
is right; any other is dropped and its run made again. Written by `run`, read by `run` (resume) and `merge`.
"""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sim.errors import ResultsError
from sim.experiment.files import StorageError, finite, write_bytes

NAME = "journal.jsonl"

Record = dict[str, Any]


class Journal:
    """A journal open for appending.

    Args:
        path: the file; made if missing. A torn last line of an earlier process is cut off.

    Raises:
        StorageError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            self._file = path.open("ab")
            self._file.truncate(_whole_bytes(path))
        except OSError as error:
            raise StorageError(f"{path.name}: cannot be written ({error.strerror})") from error

    def append(self, record: Record) -> None:
        """Write one record and wait until the disk has it.

        Raises:
            StorageError: the disk is full or failed; a torn line is dropped when the journal is read.
        """
        try:
            self._file.write(_line(record))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"{self._name}: cannot be written ({error.strerror})") from error

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:  # what could not be flushed was reported by `append`
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_journal(path: Path) -> Iterator[Record]:
    """The records that are whole, in order; none when there is no file.

    Raises:
        ResultsError: the file is there and cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror})") from error
    for line in data.split(b"\n"):
        record = _record(line)
        if record is not None:
            yield record


def write_journal(path: Path, records: Iterable[Record]) -> None:
    """Replace the journal by these records: in a fixed order, a finished experiment has the same bytes every time.

    Raises:
        StorageError: the file cannot be written.
    """
    write_bytes(path, b"".join(_line(record) for record in records))


def as_record(value: Record) -> Record:
    """The record as it will be read back: plain data, None for what is not finite."""
    plain: Record = json.loads(_text(value))
    return plain


def _text(record: Record) -> str:
    return json.dumps(finite(record), separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _line(record: Record) -> bytes:
    text = _text(record)
    return b'{"crc":"%08x","record":%b}\n' % (zlib.crc32(text.encode()), text.encode())


def _record(line: bytes) -> Record | None:
    """The record of a line, None when it is damaged; the checksum is that of the record's own bytes."""
    head, separator, text = line[:-1].partition(b',"record":')
    if not separator or not line.endswith(b"}") or head != b'{"crc":"%08x"' % zlib.crc32(text):
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _whole_bytes(path: Path) -> int:
    """Length of the file up to its last line end."""
    return path.read_bytes().rfind(b"\n") + 1
