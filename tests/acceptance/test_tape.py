"""A tape answers for any number of verified drafts, whether or not the first drafts depend on K."""

import numpy as np
import pytest

from sim.acceptance.base import Tape


def test_a_chain_is_cut_at_the_drafts_verified():
    tape = Tape(np.array([0, 2, 5], np.uint8))
    assert tape.at(3).tolist() == [0, 2, 3]
    assert tape.taken(np.array([2, 2, 1]), np.array([0, 4, 4])).tolist() == [0, 4, 2]


def test_a_tape_by_k_uses_the_next_smaller_k():
    tape = Tape(np.array([3, 3], np.uint8), by_k={2: np.array([2, 0], np.uint8), 6: np.array([3, 1], np.uint8)})
    assert tape.at(1).tolist() == [0, 0]
    assert tape.at(5).tolist() == [2, 0]
    assert tape.at(7).tolist() == [3, 1]
    assert tape.taken(np.array([0, 0, 0, 1]), np.array([1, 2, 5, 9])).tolist() == [0, 2, 2, 1]


def test_a_tape_that_accepts_more_than_is_verified_is_refused():
    with pytest.raises(ValueError, match="more drafts than are verified"):
        Tape(np.array([3], np.uint8), by_k={2: np.array([3], np.uint8)}).check()


def test_another_tape_in_part_of_the_place():
    """Two classes of requests: where the second one is, its own tape counts, whatever both are made of."""
    there = np.array([False, True, True])
    one = Tape(np.array([1, 1, 1], np.uint8), by_k={2: np.array([1, 1, 1], np.uint8)})
    other = Tape(np.array([0, 3, 2], np.uint8), proposed=np.array([0, 4, 2], np.uint8))
    both = one.overlaid(other, there, 5)
    both.check()
    assert both.accepted.tolist() == [1, 3, 2]
    assert both.proposed.tolist() == [5, 4, 2]
    assert both.at(2).tolist() == [1, 2, 2]
    trees = [Tape(np.array([1, 0], np.uint8), reach=np.array(r, np.uint8)) for r in ([[1], [255]], [[3], [2]])]
    assert trees[0].overlaid(trees[1], np.array([False, True]), 5).reach.tolist() == [[1], [2]]
