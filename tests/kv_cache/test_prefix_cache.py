"""The free queue and the prefix cache, part by part."""

import random

import numpy as np
import pytest

from sim.errors import InvariantError
from sim.kv_cache.block_names import BlockNames
from sim.kv_cache.block_pool import BlockPool
from sim.kv_cache.free_queue import FreeQueue
from sim.kv_cache.prefix_cache import PrefixCache
from sim.workload.requests import RequestTable, SharedPrefixes


@pytest.mark.parametrize("seed", range(20))
def test_free_queue_is_a_list(seed: int) -> None:
    rng, queue, plain = random.Random(seed), FreeQueue(30), list[int]()
    outside = list(range(30))
    for _ in range(400):
        action = rng.random()
        if action < 0.3:
            count = rng.randint(0, 5)
            queue.add_blanks(count)
            plain += [-1] * count
        elif action < 0.6:
            ids = [outside.pop(rng.randrange(len(outside))) for _ in range(rng.randint(0, min(4, len(outside))))]
            queue.add(np.array(ids, np.int64))
            plain += ids
        elif action < 0.75:
            inside = [block for block in plain if block >= 0]
            ids = rng.sample(inside, rng.randint(0, min(3, len(inside))))
            queue.remove(np.array(ids, np.int64))
            plain = [block for block in plain if block not in ids or block < 0]
            outside += ids
        else:
            count = rng.randint(0, len(plain))
            popped = [block for block in plain[:count] if block >= 0]
            assert queue.pop(count).tolist() == popped
            plain, outside = plain[count:], outside + popped
        assert len(queue) == len(plain)
        assert queue.ids().tolist() == [block for block in plain if block >= 0]


def table(prompt: list[int], parent: list[int], shared: list[int], output: int = 8) -> RequestTable:
    columns = [np.array(column, np.int64) for column in (prompt, parent, shared)]
    zeros = np.zeros(len(prompt), np.int64)
    prefixes = SharedPrefixes(columns[1], columns[2])
    return RequestTable(zeros, columns[0], zeros + output, zeros, zeros == 0, prefixes=prefixes)


def test_shared_blocks_have_one_name() -> None:
    # Row 1 shares 9 tokens with row 0, row 2 shares 20 with row 1 (of them 8 in whole blocks of row 0), row 3 none.
    names = BlockNames(table([12, 24, 30, 10], [-1, 0, 1, -1], [0, 9, 20, 0]), block_size=4)
    zero, one, two = names.of(0, 0, 5), names.of(1, 0, 8), names.of(2, 0, 9)
    assert one[:2].tolist() == zero[:2].tolist()
    assert two[:5].tolist() == one[:5].tolist()
    every = np.concatenate((zero, one[2:], two[5:], names.of(3, 0, 4)))
    assert len(np.unique(every)) == len(every)
    assert names.of(2, 1, 3).tolist() == [zero[1], one[2]]
    assert names.reach.tolist() == [2, 5, 5, 0]
    assert [list(names.ancestors(row)) for row in range(4)] == [[], [0], [1, 0], []]


def cache(num_blocks: int, shared: int = 16, drop_last: bool = False) -> PrefixCache:
    names = BlockNames(table([20, 20, 20], [-1, 0, 0], [0, shared, shared]), block_size=4)
    return PrefixCache(BlockPool(num_blocks, 4), names, drop_last)


def admit(c: PrefixCache, row: int, tokens: int) -> int:
    """Admit with all blocks for `tokens`; returns the blocks found."""
    match = c.match(row, 20)
    c.enter(row, match)
    c.pool.take(-(-tokens // 4) - len(match.ids))
    c.fill(row, tokens)
    c.check()
    return len(match.ids)


def test_shared_blocks_are_held_once_and_outlive_their_request() -> None:
    c = cache(20)
    assert [admit(c, row, 20) for row in range(3)] == [0, 4, 4]
    assert c.pool.used == 5 + 1 + 1
    assert c.surplus == 8
    for row in range(3):
        c.leave(row, 5, 20)
        c.check()
    assert (c.pool.free, c.surplus) == (20, 0)
    assert admit(c, 1, 20) == 4


def test_a_match_leaves_one_token_to_compute() -> None:
    c = cache(20, shared=20)
    admit(c, 0, 20)
    assert len(c.match(1, 20).ids) == 4
    assert len(c.match(1, 21).ids) == 5
    assert len(cache(20, shared=20, drop_last=True).match(1, 21).ids) == 0


def test_eagle_drops_one_block_and_leaves_a_copy_behind() -> None:
    c = cache(20, drop_last=True)
    assert [admit(c, row, 20) for row in range(2)] == [0, 3]
    assert c.pool.used == 5 + 2
    c.leave(0, 5, 20)
    c.leave(1, 5, 20)
    c.check()
    assert len(c.match(2, 20).ids) == 3


def test_the_beginning_of_a_request_is_evicted_last() -> None:
    c = cache(8)
    admit(c, 0, 20)
    c.leave(0, 5, 20)
    for taken, left in ((3, 4), (1, 4), (1, 3), (1, 2), (1, 1), (1, 0)):  # three blanks, the partial block, the rest
        c.pool.take(taken)
        assert len(c.match(1, 20).ids) == left
    assert c.evictions == 4


def test_check_notices_a_wrong_count() -> None:
    c = cache(20)
    admit(c, 0, 20)
    c.pool.free -= 1  # a block taken behind the cache's back is only late
    c.check()
    c.pool.free += 2
    with pytest.raises(InvariantError):
        c.check()
