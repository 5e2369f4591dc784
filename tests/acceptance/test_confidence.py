"""Confidence goes with the tape: calibrated, as sharp as asked, and the same whatever else is drawn."""

import numpy as np
import pytest
from scipy import stats

from sim.acceptance.base import Tape
from sim.acceptance.confidence import _beta_share_below, confident_drafts
from sim.acceptance.iid import Iid
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.workload.requests import RequestTable

K = 4


def requests(num: int, output: int) -> RequestTable:
    zeros, full = np.zeros(num, np.int64), np.full(num, output)
    return RequestTable(zeros, full, full, zeros, np.ones(num, np.bool_))


@pytest.fixture(scope="module")
def case():
    table = requests(400, 250)
    return table, Iid(rate=0.65).tape(table, K, Streams(5))


@pytest.mark.parametrize("sharpness", [0.1, 0.5, 0.9])
def test_calibrated_first_drafts(case, sharpness: float) -> None:
    """Of the first drafts with confidence in a bin, the share accepted is the mean of Beta(q s, (1 - q) s) there.

    Tolerance: 4.5 standard errors of a share, for each of five bins.
    """
    table, tape = case
    accepted, edges = tape.accepted >= 1, (0.0, 0.3, 0.5, 0.7, 0.9)
    sure = [confident_drafts(tape, table, K, edge, sharpness, Streams(5)) >= 1 for edge in edges]
    rate, size = accepted.mean(), 1 / sharpness - 1
    law = stats.beta(rate * size, (1 - rate) * size)
    for low, high, above, beyond in zip(
        edges, (*edges[1:], 1.0), sure, (*sure[1:], np.zeros(len(accepted), bool)), strict=True
    ):
        inside = above & ~beyond
        share = law.cdf(high) - law.cdf(low)
        assert inside.mean() == pytest.approx(share, abs=4.5 * np.sqrt(share / len(inside)))
        mean = law.expect(lambda c: c, lb=low, ub=high, conditional=True)
        assert accepted[inside].mean() == pytest.approx(mean, abs=4.5 * 0.5 / np.sqrt(inside.sum()))


def test_extremes_of_sharpness(case) -> None:
    table, tape = case
    knows = confident_drafts(tape, table, K, 0.5, 1.0, Streams(5))
    assert (knows == np.minimum(tape.accepted, K)).all()
    for threshold, expected in ((0.6, K), (0.7, 0)):  # says 0.65 of all of them
        assert (confident_drafts(tape, table, K, threshold, 0.0, Streams(5)) == expected).all()
    assert (confident_drafts(tape, table, K, 0.0, 0.5, Streams(5)) == K).all()


def test_keyed_by_position_and_falling_with_the_threshold(case) -> None:
    table, tape = case
    low, high = (confident_drafts(tape, table, K, threshold, 0.4, Streams(5)) for threshold in (0.4, 0.7))
    assert (high <= low).all()
    assert (high < low).any()
    shorter = confident_drafts(tape, table, 2, 0.4, 0.4, Streams(5))
    assert (np.minimum(low, 2) == shorter).mean() == 1.0


def test_beta_share_below_is_the_distribution_function() -> None:
    for a, b, x in ((0.6, 1.9, 0.3), (7.5, 3.5, 0.75), (1.65, 0.35, 0.4)):
        assert _beta_share_below(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-7)


def test_no_confidence_where_drafts_are_no_plain_chains() -> None:
    table = requests(2, 5)
    ones = np.ones(10, np.uint8)
    for tape in (Tape(ones, ones), Tape(ones, by_k={1: ones})):
        with pytest.raises(ScenarioError, match="confidence"):
            confident_drafts(tape, table, 1, 0.5, 0.5, Streams(0))
