"""Who gets a prompt whose beginning somebody has seen."""

import numpy as np

from sim.routing.base import Load
from sim.routing.prefix_affinity import PrefixAffinity
from sim.workload.requests import RequestTable, SharedPrefixes


def table(parent: list[int], shared: list[int], prompt: int = 100) -> RequestTable:
    n = len(parent)
    zeros, full = np.zeros(n, np.int64), np.full(n, prompt)
    prefixes = SharedPrefixes(np.array(parent), np.array(shared))
    return RequestTable(zeros, full, full, zeros, np.ones(n, np.bool_), prefixes=prefixes)


def even(*outstanding: int) -> list[Load]:
    return [Load(count, 0) for count in outstanding]


def test_follows_the_prefix_and_spreads_the_rest() -> None:
    chooser = PrefixAffinity().bind(2, table([-1, -1, 1, 2, 0], [0, 0, 90, 90, 90]))
    assert [chooser.choose(row, even(0, 0)) for row in range(5)] == [0, 1, 1, 1, 0]


def test_a_short_common_beginning_does_not_count() -> None:
    chooser = PrefixAffinity(cache_threshold=0.5).bind(2, table([-1, 0, 0], [0, 49, 50]))
    assert [chooser.choose(row, even(0, 0)) for row in range(3)] == [0, 1, 0]


def test_an_uneven_load_counts_more() -> None:
    policy = PrefixAffinity(balance_abs_threshold=10, balance_rel_threshold=2.0)
    chooser = policy.bind(2, table([-1, 0, 0, 0], [0, 90, 90, 90]))
    assert chooser.choose(0, even(0, 0)) == 0
    assert chooser.choose(1, even(20, 10)) == 0  # ten more, but not more than ten
    assert chooser.choose(2, even(40, 20)) == 0  # twice as many, but not more than twice
    assert chooser.choose(3, even(40, 19)) == 1


def test_prompts_without_anything_in_common_go_to_the_fewest() -> None:
    lone = RequestTable(*(np.ones(3, np.int64) for _ in range(4)), np.ones(3, np.bool_))
    chooser = PrefixAffinity().bind(2, lone)
    assert [chooser.choose(row, even(5, 1)) for row in range(3)] == [1, 1, 1]
