"""Single requests: on their way into the running list (`Entry`), and walked ahead of time (`Walker`).

With K fixed, the tape says where each step of a decoding request starts, so all its steps are known in advance.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Tape

Ints = NDArray[np.int64]

# What an epoch sums up over its decoding requests, per step: tokens emitted, KV blocks taken, drafts verified, requests
# with drafts (hence several new tokens), their KV tokens from earlier steps, their query-key pairs, and the tokens
# emitted by requests that speculate.
EMITTED, BLOCKS, DRAFTS, SEVERAL, CACHED, PAIRS, DRAFTING = range(7)
NUM_SUMS = 7


class Entry(NamedTuple):
    """A request on its way into the running list or an epoch.

    Attributes:
        row: request table row.
        known: known tokens.
        lag: known tokens still to be computed (1 when it decodes).
        cursor: flat position of its next output token.
        end: flat position after its last one.
        blocks: KV blocks it holds.
        speculates, settled: as in the running list.
    """

    row: int
    known: int
    lag: int
    cursor: int
    end: int
    blocks: int
    speculates: int
    settled: int


class Walker(NamedTuple):
    """The rest of one request when every step verifies up to k drafts.

    Attributes:
        entry: the request as it was before its first step.
        first_step: index of the engine step that emits `starts[0]`.
        fresh: 1 when `starts[0]` is the token that prefill produces, else 0.
        starts: (m,) flat output positions where its chunks start, one per step.
        drafts: (m,) drafts verified in each step; 0 for the token that prefill produces.
        blocks: (m,) KV blocks held during each step.
    """

    entry: Entry
    first_step: int
    fresh: int
    starts: Ints
    drafts: Ints
    blocks: Ints

    @property
    def last_step(self) -> int:
        """Index of the step in which it is done."""
        return self.first_step + len(self.starts) - 1

    @property
    def final_known(self) -> int:
        """Known tokens when it is done."""
        return self.entry.known + self.entry.end - self.entry.cursor

    def settled_before(self, step: int) -> int:
        """Tokens that were final when it was last scheduled before the engine step with this index."""
        taken = step - self.first_step
        return self.entry.known + int(self.starts[taken - 1]) - self.entry.cursor if taken else self.entry.settled

    def loads(self) -> Ints:
        """(m, NUM_SUMS) what each step adds to the sums of an epoch."""
        starts, entry = self.starts, self.entry
        loads = np.zeros((len(starts), NUM_SUMS), np.int64)
        emitted, blocks = loads[:, EMITTED], loads[:, BLOCKS]
        np.subtract(starts[1:], starts[:-1], out=emitted[:-1])
        emitted[-1] = entry.end - starts[-1]
        np.subtract(self.blocks[1:], self.blocks[:-1], out=blocks[1:])
        blocks[0] = self.blocks[0] - entry.blocks
        if not entry.speculates:
            return loads
        loads[:, DRAFTING] = emitted
        drafts, several = self.drafts, self.drafts > 0
        tokens = drafts + several
        cached = (starts + (entry.known - entry.cursor - 1)) * several
        loads[:, DRAFTS] = drafts
        loads[:, SEVERAL] = several
        loads[:, CACHED] = cached
        loads[:, PAIRS] = tokens * cached + tokens * (tokens + 1) // 2
        return loads

    def at(self, step: int) -> Entry:
        """The request as it is before the engine step with this index."""
        taken = step - self.first_step
        if not taken:
            return self.entry
        cursor = int(self.starts[taken])
        known = self.entry.known + cursor - self.entry.cursor
        blocks, settled = int(self.blocks[taken - 1]), self.settled_before(step)
        return self.entry._replace(known=known, lag=1, cursor=cursor, blocks=blocks, settled=settled)


class Track:
    """What walking needs to know of the tape and the engine.

    Args:
        tape: acceptance by flat position.
        first, end: (N,) flat positions of every request's first output token, and after its last one.
        lookahead_tokens, block_size: of the engine.
    """

    def __init__(self, tape: Tape, first: Ints, end: Ints, lookahead_tokens: int, block_size: int) -> None:
        self._tape, self._first, self._end = tape, first, end
        self.lookahead_tokens, self.block_size = lookahead_tokens, block_size
        self._strides: dict[int, bytes] = {}
        self._whole: dict[int, tuple[Ints, list[int]]] = {}

    def walk(self, entry: Entry, first_step: int, k: int, fresh: int) -> Walker:
        """Lay out the steps of a request.

        Args:
            entry: the request before its first step.
            first_step: engine step that emits its next token.
            k: drafts per step, if the request speculates.
            fresh: 1 when that token comes from prefill, with blocks already held, else 0.
        """
        k *= entry.speculates
        starts = self._chunk_starts(entry, k, fresh)
        drafts = self._drafts(starts, k)
        if fresh:
            drafts[0] = 0
        blocks = starts + (entry.known - entry.cursor + self.lookahead_tokens + self.block_size - 1)
        blocks += drafts
        blocks //= self.block_size
        if fresh:
            blocks[0] = entry.blocks
        np.maximum.accumulate(np.maximum(blocks, entry.blocks, out=blocks), out=blocks)
        return Walker(entry, first_step, fresh, starts, drafts, blocks)

    def _drafts(self, starts: Ints, k: int) -> Ints:
        proposed = self._tape.proposed
        if not k or proposed is None:
            return np.full(len(starts), k)
        return np.minimum(proposed.take(starts), k).astype(np.int64)

    def _chunk_starts(self, entry: Entry, k: int, fresh: int) -> Ints:
        row, start, end = entry.row, entry.cursor, entry.end
        if not k:
            return np.arange(start, end)
        if fresh and start == self._first[row]:
            starts, bounds = self._whole.get(k) or self._walk_whole(k)
            return starts[bounds[row] : bounds[row + 1]]
        rest = [start] if fresh else []
        position, stride = start + fresh, self._strides.get(k) or self._stride(k)
        while position < end:
            rest.append(position)
            position += stride[position]
        return np.array(rest, np.int64)

    def _walk_whole(self, k: int) -> tuple[Ints, list[int]]:
        """Chunk starts of all requests from their first token on, one after another, and where each request's begin."""
        starts_here = np.zeros(len(self._tape.accepted) + 1, np.bool_)
        starts_here[self._first] = True
        position, end, accepted = self._first + 1, self._end, self._tape.at(k)
        while len(position):
            going_on = position < end
            position, end = position[going_on], end[going_on]
            starts_here[position] = True
            position += accepted.take(position)
            position += 1
        starts = np.flatnonzero(starts_here)
        bounds = [*np.searchsorted(starts, self._first).tolist(), len(starts)]
        self._whole[k] = starts, bounds
        return starts, bounds

    def _stride(self, k: int) -> bytes:
        """Tokens emitted by flat position; bytes are quicker to read one by one than an array."""
        self._strides[k] = stride = (self._tape.at(k) + np.uint8(1)).tobytes()
        return stride
