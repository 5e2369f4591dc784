"""A mean per K, and the best of several guesses."""

import numpy as np
import pytest
from pydantic import ValidationError

from sim.acceptance.guesses import Guesses
from sim.acceptance.iid import Iid
from sim.acceptance.table_by_k import TableByK
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.workload.requests import RequestTable

#: A block drafter whose length falls again beyond K = 6 (InferenceX golden lengths, deepseek-v4-pro-0813, dspark).
BLOCKS = {3: 3.01, 6: 3.77, 8: 3.47}


def requests(count: int, tokens: int) -> RequestTable:
    zeros = np.zeros(count, np.int64)
    return RequestTable(zeros, zeros + 10, zeros + tokens, zeros, np.ones(count, np.bool_))


@pytest.mark.parametrize("shape", ["geometric", "min_variance"])
def test_every_k_has_its_own_mean_in_steps_that_are_taken(shape: str) -> None:
    """4 standard errors over 600 requests."""
    model = TableByK(tokens_per_step=BLOCKS, shape=shape)
    table = requests(600, 1000)
    tape = model.tape(table, 8, Streams(3))
    for k, mean in BLOCKS.items():
        found = walk(tape, table, k)
        assert 1 + model.survival(k).sum() == pytest.approx(mean)
        assert 1 + found.survival.sum() == pytest.approx(mean, abs=4 * found.tokens_per_step_error + 1e-3)


def test_a_smaller_table_draws_the_same_text() -> None:
    """The uniform of a text position is the same whatever K an arm asks for."""
    table = requests(20, 300)
    whole = TableByK(tokens_per_step=BLOCKS).tape(table, 8, Streams(3))
    for k in (3, 6):
        alone = TableByK(tokens_per_step={k: BLOCKS[k]}).tape(table, k, Streams(3))
        assert np.array_equal(whole.at(k), alone.at(k))


def test_with_one_rate_for_all_k_it_is_the_chain_of_that_rate() -> None:
    table, rate = requests(20, 300), 0.6
    means = {k: float((1 - rate ** (k + 1)) / (1 - rate)) for k in (1, 2, 5)}
    tape = TableByK(tokens_per_step=means).tape(table, 5, Streams(3))
    chain = Iid(rate=rate).tape(table, 5, Streams(3))
    for k in means:
        assert np.array_equal(tape.at(k), chain.at(k))


def test_fewer_drafts_than_were_made_count_as_the_next_smaller_k() -> None:
    table = requests(5, 50)
    tape = TableByK(tokens_per_step=BLOCKS).tape(table, 8, Streams(3))
    cursor = np.arange(250)
    for drafts, counted in ((8, 8), (7, 6), (5, 3), (2, 0)):
        taken = tape.taken(cursor, np.full(250, drafts))
        assert np.array_equal(taken, tape.at(counted)), drafts


def test_nothing_is_interpolated() -> None:
    model = TableByK(tokens_per_step=BLOCKS)
    assert model.missing_draft_tokens([1, 3, 5, 6]) == (1, 5)
    with pytest.raises(ScenarioError, match="has no K = 7; it has 3, 6, 8, and nothing is interpolated"):
        model.tape(requests(1, 5), 7, Streams(0))


@pytest.mark.parametrize(
    ("means", "message"),
    [({3: 4.01}, "K = 3: tokens per step 4.01; allowed: 1 to 4"), ({3: 0.9}, "allowed: 1 to 4"), ({}, "at least 1"),
     ({0: 1.0}, "greater than or equal to 1"), ({65: 2.0}, "less than or equal to 64")],
)  # fmt: skip
def test_impossible_tables_are_refused(means: dict[int, float], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TableByK(tokens_per_step=means)


@pytest.mark.parametrize(("guesses", "tokens"), [(1, 1.9375), (2, 2.5430), (4, 3.2624), (8, 3.9557), (15, 4.4719)])
def test_the_best_of_several_guesses_has_the_published_closed_form(guesses: int, tokens: float) -> None:
    """Lookahead decoding, arXiv 2402.02057: (g + 1) - sum (1 - alpha^i)^b at g = 4, alpha = 0.5."""
    survival = Guesses(rate=0.5, guesses=guesses).survival(4)
    assert 1 + survival.sum() == pytest.approx(tokens, abs=5e-5)
    assert 5 - sum((1 - 0.5**i) ** guesses for i in range(1, 5)) == pytest.approx(1 + survival.sum())


def test_one_guess_is_a_chain() -> None:
    assert Guesses(rate=0.7, guesses=1).survival(6) == pytest.approx(Iid(rate=0.7).survival(6))
