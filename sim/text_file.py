"""A data file's bytes as text, with limits on size and decompression. Used for traces and measured tables."""

import gzip
import hashlib
import io
import zlib
from pathlib import Path

from sim.errors import Problem, ScenarioError

#: Largest file, after decompression.
MAX_BYTES = 128 * 2**20
#: A gzip file may not grow by more than this.
MAX_GZIP_RATIO = 100

_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path) -> tuple[str, str]:
    """The file's text (UTF-8, byte-order mark dropped, gzip unpacked) and the SHA-256 (hex) of its bytes.

    Raises:
        ScenarioError: unreadable, too large, damaged gzip, or not UTF-8 (with the line).
    """
    raw = _read(path)
    digest = hashlib.sha256(raw).hexdigest()
    body = _gunzip(path, raw) if raw.startswith(_GZIP_MAGIC) else raw
    if body.startswith(_UTF16_MARKS):
        raise refuse(path, "is UTF-16; save it as UTF-8")
    try:
        return body.decode("utf-8-sig"), digest
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise refuse(path, f"not UTF-8 text (byte {body[error.start]:#04x})", line) from None


def refuse(path: Path, message: str, line: int | None = None) -> ScenarioError:
    """The error for one thing wrong with a data file."""
    where = str(path) if line is None else f"{path}:{line}"
    return ScenarioError([Problem(where, "", message)])


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refuse(path, f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise refuse(path, f"larger than {MAX_BYTES // 2**20} MiB; cut out the part you need")
    return raw


def _gunzip(path: Path, raw: bytes) -> bytes:
    limit = min(MAX_BYTES, MAX_GZIP_RATIO * len(raw))
    try:
        body = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise refuse(path, f"damaged or cut gzip file ({error})") from None
    if len(body) > limit:
        raise refuse(path, f"unpacks to more than {MAX_GZIP_RATIO} times its size or {MAX_BYTES // 2**20} MiB")
    return body
