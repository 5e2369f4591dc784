"""The order in which free KV blocks are handed out again, as vLLM V1's `FreeKVCacheBlockQueue` keeps it.

Blocks are taken from the head and given back at the tail; a cached block that is hit leaves from the middle. A blank is
a block whose content nobody can ask for.
"""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

BLANK = -1
_NOWHERE = -1


class FreeQueue:
    """Blanks and cached blocks (by id, 0..num_ids-1) in order; an id stands in it at most once."""

    def __init__(self, num_ids: int) -> None:
        self._cells = np.full(max(num_ids, 1), BLANK, np.int64)
        self._place = np.full(num_ids, _NOWHERE, np.int64)
        self._head = self._tail = self._length = 0

    def __len__(self) -> int:
        return self._length

    def reset(self, num_blanks: int) -> None:
        """Hold nothing but blanks."""
        self._place[:] = _NOWHERE
        self._head = self._tail = self._length = 0
        self.add_blanks(num_blanks)

    def add_blanks(self, count: int) -> None:
        """Append blanks at the tail."""
        self._make_room(count)
        self._cells[self._tail : self._tail + count] = BLANK
        self._tail += count
        self._length += count

    def add(self, ids: Ids) -> None:
        """Append cached blocks at the tail, in this order."""
        self._make_room(len(ids))
        end = self._tail + len(ids)
        self._cells[self._tail : end] = ids
        self._place[ids] = np.arange(self._tail, end)
        self._tail = end
        self._length += len(ids)

    def remove(self, ids: Ids) -> None:
        """Take cached blocks out, wherever they are; their cells are passed over later."""
        self._place[ids] = _NOWHERE
        self._length -= len(ids)

    def pop(self, count: int) -> Ids:
        """Take `count` blocks off the head; returns the ids among them, in order."""
        popped = []
        self._length -= count
        while count:
            end = min(self._head + max(2 * count, 64), self._tail)
            cells = self._cells[self._head : end]
            taken = np.flatnonzero(self._present(self._head, end))[:count]
            ids = cells[taken]
            popped.append(ids[ids != BLANK])
            count -= len(taken)
            self._head = end if count else self._head + int(taken[-1]) + 1
        ids = np.concatenate(popped) if popped else np.zeros(0, np.int64)
        self._place[ids] = _NOWHERE
        return np.asarray(ids)

    def ids(self) -> Ids:
        """The cached blocks in the queue, head first."""
        cells = self._cells[self._head : self._tail][self._present(self._head, self._tail)]
        return np.asarray(cells[cells != BLANK])

    def _present(self, start: int, end: int) -> NDArray[np.bool_]:
        """Which cells still hold their block."""
        cells = self._cells[start:end]
        present: NDArray[np.bool_] = (cells == BLANK) | (self._place[cells] == np.arange(start, end))
        return present

    def _make_room(self, count: int) -> None:
        """Close the gaps, and double the array when that is not enough."""
        if self._tail + count <= len(self._cells):
            return
        cells = self._cells[self._head : self._tail][self._present(self._head, self._tail)]
        self._cells = np.full(2 * (len(cells) + count), BLANK, np.int64)
        self._cells[: len(cells)] = cells
        self._head, self._tail = 0, len(cells)
        cached = np.flatnonzero(cells != BLANK)
        self._place[cells[cached]] = cached
