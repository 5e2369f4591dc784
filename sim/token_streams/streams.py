"""Token ids of recorded requests, as flat columns, and the reading of files of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from sim.rng import Ints
from sim.text_file import read_text, refuse
from sim.token_streams.formats import CSV_COLUMNS, ID_COLUMNS, MAX_TOKENS, read_csv, read_jsonl
from sim.token_streams.parquet import is_parquet, read_parquet


@dataclass(frozen=True, eq=False)
class TokenStreams:
    """M recorded requests in the order of their file.

    Attributes:
        tokens: (T,) ids, request after request, each its prompt and then its output.
        prompt_tokens: (M,) lengths, >= 1.
        output_tokens: (M,) lengths, >= 1; output token 0 comes from prefill.
        comparable: the same id means the same token in all requests. False for relabelled streams, where ids say
            which tokens of one request are equal, and nothing else.
    """

    tokens: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    comparable: bool = True

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @cached_property
    def offset(self) -> Ints:
        """(M + 1,) where each request starts in `tokens`, and where the last one ends."""
        return np.concatenate(([0], np.cumsum(self.prompt_tokens + self.output_tokens))).astype(np.int64)

    @cached_property
    def known_ends(self) -> Ints:
        """(D,) index into `tokens` of the last known token, for every decode position, request after request.

        A request of L output tokens has L - 1 of them: the steps that start after output token 0, 1, ... L - 2.
        """
        positions = self.output_tokens - 1
        first = self.offset[:-1] + self.prompt_tokens
        within = np.arange(positions.sum()) - np.repeat(np.cumsum(positions) - positions, positions)
        ends: Ints = np.repeat(first, positions) + within
        return ends

    @cached_property
    def request_ends(self) -> Ints:
        """(D,) where the request of every decode position ends in `tokens`."""
        return np.repeat(self.offset[1:], self.output_tokens - 1)

    def requests(self) -> Iterator[tuple[list[int], list[int]]]:
        """Prompt and output ids of one request after another."""
        for ids, prompt in zip(np.split(self.tokens, self.offset[1:-1]), self.prompt_tokens.tolist(), strict=True):
            yield ids[:prompt].tolist(), ids[prompt:].tolist()

    @classmethod
    def of(cls, requests: Sequence[tuple[Sequence[int], Sequence[int]]], *, comparable: bool = True) -> "TokenStreams":
        """Streams from (prompt ids, output ids) of each request."""
        parts = [np.asarray(ids, dtype=np.int64) for request in requests for ids in request]
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        tokens = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return cls(tokens, lengths[::2], lengths[1::2], comparable)


def read_streams(path: Path) -> TokenStreams:
    """The requests of a file; read once per process as long as the file does not change.

    Three forms, told apart by content: JSON lines and parquet with `prompt_token_ids` and `output_token_ids`, and CSV
    with `prompt_tokens`, `output_tokens` and `labels` (both lengths, and all ids of the request between blanks, which
    only tell tokens of one request apart). gzip is unpacked.

    Raises:
        ScenarioError: unreadable, or everything wrong in it by line (parquet: by row).
    """
    try:
        status = path.stat()
    except OSError as error:
        raise refuse(path, f"cannot be read: {error.strerror}") from None
    return _read(path, status.st_mtime_ns, status.st_size)


def holds_streams(path: Path) -> bool:
    """Whether a file looks like token streams: parquet, or their column names in its first line."""
    if is_parquet(path):
        return True
    text, _ = read_text(path)
    first = text.lstrip().partition("\n")[0]
    return ID_COLUMNS[0] in first or set(CSV_COLUMNS) <= {name.strip() for name in first.split(",")}


@lru_cache(maxsize=8)
def _read(path: Path, _mtime_ns: int, _size: int) -> TokenStreams:
    if is_parquet(path):
        return _checked(path, TokenStreams.of(read_parquet(path)))
    text, _ = read_text(path)
    if not text.strip():
        raise refuse(path, "is empty")
    if text.lstrip().startswith(("{", "[")):
        return _checked(path, TokenStreams.of(read_jsonl(text, path)))
    return _checked(path, TokenStreams.of(read_csv(text, path), comparable=False))


def _checked(path: Path, streams: TokenStreams) -> TokenStreams:
    if len(streams.tokens) > MAX_TOKENS:
        raise refuse(path, f"holds {len(streams.tokens):,} tokens; allowed: at most {MAX_TOKENS:,}")
    for column in (streams.tokens, streams.prompt_tokens, streams.output_tokens):
        column.setflags(write=False)
    return streams
