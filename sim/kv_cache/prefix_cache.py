"""Prefix caching: full KV blocks that several requests share, or that outlive their request, as in vLLM V1.

Rules of docs/background/server.md, "Prefix caching" (vLLM `v1/core/kv_cache_manager.py`, `block_pool.py`). A block is
named by its content: `BlockNames` says which blocks of which requests are the same. Only blocks that somebody may ask
for again are told apart; all others are blanks, which behave alike. Blocks are popped off the free queue late, when its
order next matters: `len(queue) - pool.free` of them are owed, so that taking blocks costs nothing here.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import InvariantError
from sim.kv_cache.block_names import BlockNames
from sim.kv_cache.block_pool import BlockPool
from sim.kv_cache.free_queue import FreeQueue

Ids = NDArray[np.int64]

_NO_IDS = np.zeros(0, np.int64)
#: More tokens than any request has.
_NEVER = 2**62


class Match(NamedTuple):
    """What the cache holds of a request's beginning.

    Attributes:
        ids: the blocks, first to last.
        num_idle: those that no running request holds, so that they count as free until they are taken.
    """

    ids: Ids
    num_idle: int


NO_MATCH = Match(_NO_IDS, 0)


class NoPrefixCache:
    """The zero of prefix caching: nothing is ever found, and blocks are plain counts.

    Attributes:
        evictions: cached blocks given up to make room.
        surplus: holdings of a block beyond its first one, summed over blocks.
        progress: tells the final tokens of a running request that fills blocks without calling `fill` (inside an
            epoch), None of others; None when there are none.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.evictions = self.surplus = 0
        self.progress: Callable[[int], int | None] | None = None

    def may_hit(self, row: int) -> bool:
        """Whether anything of this request can ever be found."""
        return False

    def match(self, row: int, known: int) -> Match:
        """The longest cached beginning of a waiting request with `known` tokens."""
        return NO_MATCH

    def enter(self, row: int, match: Match) -> None:
        """An admitted request holds the blocks it matched."""

    def fill(self, row: int, tokens: int) -> None:
        """The first `tokens` tokens of a request's blocks are final: its full blocks can be found from now on."""

    def leave(self, row: int, blocks: int, tokens: int, returns: bool = False) -> None:
        """A request gives its blocks back.

        Args:
            row: the request.
            blocks: how many it holds.
            tokens: of them, how many tokens were final when it was last scheduled.
            returns: it was preempted and will ask for its blocks again.
        """
        self.pool.give_back(blocks)

    def check(self) -> None:
        """Raise InvariantError if the cache contradicts itself."""


class PrefixCache(NoPrefixCache):
    """Blocks by content, with reference counts and least-recently-used eviction.

    Args:
        pool: counts the blocks; a cached block that nobody holds counts as free.
        names: which blocks hold the same tokens.
        drop_last: a match loses its last block, as vLLM does for EAGLE-like drafters (`use_eagle`).

    Attributes:
        due: (N,) final tokens at which a running request has another block to `fill`.
    """

    def __init__(self, pool: BlockPool, names: BlockNames, drop_last: bool) -> None:
        super().__init__(pool)
        self._names, self._drop_last = names, drop_last
        self.due = np.full(len(names.reach), _NEVER, np.int64)
        self._reach: list[int] = names.reach.tolist()
        self._returning: set[int] = set()
        self._held: dict[int, Ids] = {}
        self._filling: set[int] = set()
        size = pool.num_blocks
        self._queue = FreeQueue(size)
        self._unused, self._num_unused = np.arange(size), size
        self._name, self._ref = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._later_copies: dict[int, list[int]] = {}

    def may_hit(self, row: int) -> bool:
        """Whether it shares blocks with another request, or comes back after a preemption."""
        return self._reach[row] > 0 or row in self._returning

    def match(self, row: int, known: int) -> Match:
        """Whole blocks from the first on, at most `known - 1` tokens: one is computed for its logits."""
        if not self.may_hit(row):
            return NO_MATCH
        self._catch_up(row)
        self._evict_owed()
        limit = (known - 1) // self.pool.block_size
        limit = limit if row in self._returning else min(limit, self._reach[row])
        ids = self._names.first_copy[self._names.of(row, 0, limit)]
        missing = np.flatnonzero(ids < 0)
        count = int(missing[0]) if len(missing) else limit
        if self._drop_last and count:
            count -= 1
        ids = ids[:count]
        return Match(ids, int(np.count_nonzero(self._ref[ids] == 0)))

    def enter(self, row: int, match: Match) -> None:
        """Touch the matched blocks: those that nobody held leave the free queue."""
        self._await_fill(row, len(match.ids))
        if not len(match.ids):
            return
        idle = match.ids[self._ref[match.ids] == 0]
        self._queue.remove(idle)
        self.pool.take(len(idle))
        self._ref[match.ids] += 1
        self.surplus += len(match.ids) - len(idle)
        self._held[row] = match.ids

    def fill(self, row: int, tokens: int) -> None:
        """Cache full blocks that others may ask for."""
        if self._reach[row]:
            self._catch_up(row)
            self._fill(row, min(tokens // self.pool.block_size, self._reach[row]))

    def leave(self, row: int, blocks: int, tokens: int, returns: bool = False) -> None:
        """Give the blocks back, last one first, so that the beginning of a request is evicted last."""
        full = tokens // self.pool.block_size
        if returns or self._reach[row]:
            self._fill(row, full if returns else min(full, self._reach[row]))
            self._await_fill(row, _NEVER)
        (self._returning.add if returns else self._returning.discard)(row)
        if self._num_unused == self.pool.num_blocks:  # nothing is cached: a count is enough
            self.pool.give_back(blocks)
            return
        held = self._held.pop(row, _NO_IDS)
        self._evict_owed()
        held = held[::-1]
        self._ref[held] -= 1
        idle = held[self._ref[held] == 0]
        self.surplus -= len(held) - len(idle)
        self._queue.add_blanks(blocks - len(held))
        self._queue.add(idle)
        self.pool.give_back(blocks - len(held) + len(idle))

    def _await_fill(self, row: int, blocks: int) -> None:
        """Note when the request, with so many blocks cached, has the next one to cache."""
        reach = self._reach[row]
        if not reach:
            return
        if blocks < reach:
            self.due[row] = (blocks + 1) * self.pool.block_size
            self._filling.add(row)
        else:
            self.due[row] = _NEVER
            self._filling.discard(row)

    def _catch_up(self, row: int) -> None:
        """Cache what the requests that this one begins like have filled inside an epoch: blocks of their own."""
        if self.progress is None:
            return
        for ancestor in self._names.ancestors(row):
            tokens = self.progress(ancestor) if ancestor in self._filling else None
            if tokens is not None:
                self._fill(ancestor, min(tokens // self.pool.block_size, self._reach[ancestor]))

    def _fill(self, row: int, blocks: int) -> None:
        """Name the request's first `blocks` blocks; a copy of a block already cached is found after it only."""
        held = self._held.get(row, _NO_IDS)
        if blocks <= len(held):
            return
        names = self._names.of(row, len(held), blocks)
        ids = self._new_ids(len(names))
        self._name[ids], self._ref[ids] = names, 1
        known = self._names.first_copy[names] >= 0
        self._names.first_copy[names[~known]] = ids[~known]
        for name, copy in zip(names[known].tolist(), ids[known].tolist(), strict=True):
            self._later_copies.setdefault(name, []).append(copy)
        self._held[row] = np.concatenate((held, ids))
        self._await_fill(row, blocks)

    def _new_ids(self, count: int) -> Ids:
        if self._num_unused == self.pool.num_blocks:
            self._queue.reset(self.pool.free)
        self._num_unused -= count
        if self._num_unused < 0:  # blocks still owed to the queue have not returned theirs
            self._num_unused += count
            self._evict_owed()
            self._num_unused -= count
        return self._unused[self._num_unused : self._num_unused + count].copy()

    def _evict_owed(self) -> None:
        """Pop the blocks that were taken since the queue was last looked at; cached ones among them are lost."""
        owed = len(self._queue) - self.pool.free
        if owed <= 0 or self._num_unused == self.pool.num_blocks:
            return
        ids = self._queue.pop(owed)
        self.evictions += len(ids)
        self._unused[self._num_unused : self._num_unused + len(ids)] = ids
        self._num_unused += len(ids)
        names = self._name[ids]
        if not self._later_copies:
            self._names.first_copy[names] = -1
            return
        for name, block in zip(names.tolist(), ids.tolist(), strict=True):
            self._forget(name, block)

    def _forget(self, name: int, block: int) -> None:
        """Take one copy away; the next oldest is found in its place."""
        later, first = self._later_copies.get(name, []), self._names.first_copy
        if first[name] != block:
            later.remove(block)
        else:
            first[name] = later.pop(0) if later else -1
        if not later:
            self._later_copies.pop(name, None)

    def check(self) -> None:
        """Every cached block is held or in the queue, never both, and counts agree.

        Raises:
            InvariantError: one is broken.
        """
        self._evict_owed()
        in_use = np.ones(self.pool.num_blocks, np.bool_)
        in_use[self._unused[: self._num_unused]] = False
        refs = np.zeros(self.pool.num_blocks, np.int64)
        for ids in self._held.values():
            refs[ids] += 1
        queued = np.zeros(self.pool.num_blocks, np.bool_)
        queued[self._queue.ids()] = True
        whole = not in_use.any() or len(self._queue) == self.pool.free
        if (refs != np.where(in_use, self._ref, 0)).any() or (in_use != (queued | (refs > 0))).any() or not whole:
            raise InvariantError("prefix cache: reference counts, free queue and pool disagree")
        if (queued & (refs > 0)).any() or self.surplus != int((refs - (refs > 0)).sum()):
            raise InvariantError("prefix cache: a block is both free and held, or sharing is miscounted")
