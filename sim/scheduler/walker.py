"""Single requests: on their way into the running list (`Entry`), and walked ahead of time (`Walker`).

With K fixed, the tape says where each step of a decoding request starts, so all its steps are known in advance.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Entry(NamedTuple):
    """A request on its way into the running list or an epoch.

    Attributes:
        row: request table row.
        known: known tokens.
        lag: known tokens still to be computed (1 when it decodes).
        cursor: flat position of its next output token.
        end: flat position after its last one.
        blocks: KV blocks it holds.
        speculates: as in the running list.
    """

    row: int
    known: int
    lag: int
    cursor: int
    end: int
    blocks: int
    speculates: int


class Walker(NamedTuple):
    """The rest of one request when every step verifies k drafts.

    Attributes:
        entry: the request as it was before its first step.
        first_step: index of the engine step that emits `starts[0]`.
        k: drafts per step.
        fresh: 1 when `starts[0]` is the token that prefill produces (no drafts verified), else 0.
        starts: (m,) flat output positions where its chunks start, one per step.
        blocks: (m,) KV blocks held during each step.
    """

    entry: Entry
    first_step: int
    k: int
    fresh: int
    starts: Ints
    blocks: Ints

    @property
    def last_step(self) -> int:
        """Index of the step in which it is done."""
        return self.first_step + len(self.starts) - 1

    @property
    def final_known(self) -> int:
        """Known tokens when it is done."""
        return self.entry.known + self.entry.end - self.entry.cursor

    def tokens(self) -> Ints:
        """(m,) tokens emitted by each step."""
        tokens = np.empty_like(self.starts)
        np.subtract(self.starts[1:], self.starts[:-1], out=tokens[:-1])
        tokens[-1] = self.entry.end - self.starts[-1]
        return tokens

    def at(self, step: int) -> Entry:
        """The request as it is before the engine step with this index."""
        taken = step - self.first_step
        if not taken:
            return self.entry
        cursor = int(self.starts[taken])
        known = self.entry.known + cursor - self.entry.cursor
        return self.entry._replace(known=known, lag=1, cursor=cursor, blocks=int(self.blocks[taken - 1]))


def walk(entry: Entry, first_step: int, k: int, fresh: int, tape: bytes, ahead: int, block_size: int) -> Walker:
    """Lay out the steps of a request.

    Args:
        entry: the request before its first step.
        first_step: engine step that emits its next token.
        k: drafts per step.
        fresh: 1 when that token comes from prefill, with blocks already held, else 0.
        tape: accepted drafts by flat position.
        ahead: KV slots a step needs beyond the known tokens (drafts and look-ahead).
        block_size: tokens per block.
    """
    starts = _chunk_starts(tape, entry.cursor, entry.end, k, fresh)
    needed = starts + (entry.known - entry.cursor + ahead + block_size - 1)
    needed //= block_size
    blocks = np.maximum(needed, entry.blocks, out=needed)
    if fresh:
        blocks[0] = entry.blocks
    return Walker(entry, first_step, k, fresh, starts, blocks)


def _chunk_starts(tape: bytes, start: int, end: int, k: int, fresh: int) -> Ints:
    if not k:
        return np.arange(start, end)
    starts = [start] if fresh else []
    position = start + fresh
    while position < end:
        starts.append(position)
        accepted = tape[position]
        position += accepted + 1 if accepted < k else k + 1
    return np.array(starts, np.int64)
