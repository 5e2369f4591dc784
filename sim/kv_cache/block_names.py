"""Which KV blocks of which requests hold the same tokens: names for their contents.

vLLM names a block by a hash over its tokens and all before them. Here a request's own blocks get numbers of their own,
and the blocks it shares with an earlier request have that request's numbers.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]


class BlockNames:
    """Names of the blocks of every request of a table.

    Attributes:
        reach: (N,) blocks from the first on that another request may ask for.
    """

    def __init__(self, table: RequestTable, block_size: int) -> None:
        rows = np.arange(len(table))
        self._tokens = table.prompt_tokens + table.output_tokens
        self._block_size = block_size
        prefixes = table.prefixes
        if prefixes is None:
            self._parent = np.full(len(table), -1)
            self._shared, self.reach = np.zeros_like(rows), np.zeros_like(rows)
            return
        self._shared = prefixes.tokens // block_size
        self._parent = np.where(self._shared > 0, prefixes.parent, -1)
        self.reach = self._shared.copy()
        shares = np.flatnonzero(self._parent >= 0)
        np.maximum.at(self.reach, self._parent[shares], self._shared[shares])

    @cached_property
    def _first_name(self) -> Ints:
        own = self._tokens // self._block_size - self._shared
        return np.concatenate(([0], np.cumsum(own)))

    @cached_property
    def first_copy(self) -> Ints:
        """(names,) id of the oldest cached block of this content; -1 = none. Kept by the cache."""
        return np.full(int(self._first_name[-1]), -1, np.int64)

    def of(self, row: int, start: int, stop: int) -> Ints:
        """Names of the blocks start..stop-1 of a request."""
        parts = [np.zeros(0, np.int64)]
        while stop > start:
            own = int(self._shared[row])
            if stop > own:
                begin, first = max(start, own), int(self._first_name[row]) - own
                parts.append(np.arange(first + begin, first + stop))
                stop = begin
            row = int(self._parent[row])
        return np.concatenate(parts[::-1])

    def ancestors(self, row: int) -> Iterator[int]:
        """The requests whose blocks this one begins with, the nearest first."""
        while (row := int(self._parent[row])) >= 0:
            yield row
