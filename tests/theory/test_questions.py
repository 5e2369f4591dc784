"""Worksheet, speed-up tables, losslessness and errata."""

import numpy as np
import pytest

from sim.rng import Streams
from sim.theory.errata import errata
from sim.theory.lossless import check_rule, random_pair, rules
from sim.theory.speedup import speedup_table
from sim.theory.tokens import emitted_distribution, improvement
from sim.theory.worksheet import worksheet
from sim.verification.base import VERIFICATION
from sim.verification.chain import Chain


@pytest.mark.parametrize(
    ("rate", "k", "alpha"), [(0.5379, 5, 0.8), (0.388, 3, 0.5963), (0.3116, 8, 0.7307), (0.7, 4, 0.8623)]
)
def test_worksheet_finds_alpha(rate, k, alpha):
    drafted = 10_000 * k
    sheet = worksheet(drafted, round(rate * drafted), num_draft_tokens=k)
    assert sheet.alpha == pytest.approx(alpha, abs=1e-4)
    assert sheet.tokens_per_step == pytest.approx(1 + rate * k, abs=1e-3)
    assert worksheet(drafted, round(rate * drafted), num_drafts=10_000).alpha == sheet.alpha


def test_worksheet_error_is_that_of_repeated_measurements():
    """500 logs of 400 steps: the spread of their alphas, to 10 % (three standard errors of a standard deviation)."""
    law = emitted_distribution(0.7, 4)
    accepted = np.random.Generator(np.random.Philox(3)).choice(5, p=law, size=(500, 400)).sum(axis=1)
    alphas = [worksheet(1600, int(count), num_draft_tokens=4).alpha for count in accepted]
    expected = worksheet(1600, int(accepted.mean()), num_draft_tokens=4).alpha_error
    assert np.std(alphas) == pytest.approx(expected, rel=0.1)


def test_worksheet_of_a_varying_k_gives_no_alpha():
    sheet = worksheet(5000, 2690, num_drafts=1200)
    assert sheet.alpha is None
    assert sheet.tokens_per_step == pytest.approx(1 + 2690 / 1200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"drafted": 10, "accepted": 11, "num_draft_tokens": 5}, "accepted <= drafted"),
        ({"drafted": 0, "accepted": 0, "num_draft_tokens": 5}, "drafted >= 1"),
        ({"drafted": 10, "accepted": 5}, "number of steps or K"),
        ({"drafted": 10, "accepted": 5, "num_drafts": 3, "num_draft_tokens": 5}, "15 drafts, not 10"),
        ({"drafted": 10, "accepted": 5, "num_drafts": 11}, "one per draft"),
    ],
)
def test_worksheet_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        worksheet(**arguments)


def test_speedup_golden_and_where_it_is_erased():
    """Best K and gain of Leviathan et al. at c = 0.05; at `pays_below` the gain is exactly gone."""
    for alpha, k, gain in ((0.6, 4, 1.921), (0.7, 6, 2.353), (0.8, 8, 3.092), (0.9, 13, 4.674)):
        table = speedup_table(alpha, 0.05, range(9))
        assert (table.best_k, table.best_speedup) == (k, pytest.approx(gain, abs=5e-4))
        assert table.rows[0].pays_below is None
        for row in table.rows[1:]:
            assert improvement(alpha, row.num_draft_tokens, row.pays_below) == pytest.approx(1.0, abs=1e-12)


def test_turn_it_off_when_a_draft_costs_what_it_brings():
    table = speedup_table(0.3, 0.3, (1, 2))
    assert (table.best_k, table.best_speedup, table.pays_up_to_k) == (0, 1.0, 0)
    assert speedup_table(0.3, 0.05, ()).pays_up_to_k == 8


def test_every_rule_is_checked_and_lossless_ones_are_at_zero():
    p, q = random_pair(4, Streams(1))
    assert p.sum() == pytest.approx(1)
    chain = Chain.repeated(p, q, 2)
    checks = [check_rule(rule, chain, 20_000, Streams(1)) for rule in rules()]
    assert {check.rule for check in checks} == set(VERIFICATION.members())
    for check in checks:
        assert (check.tv_exact < 1e-12) == check.lossless
        assert abs(check.tv_sampled - check.tv_exact) <= check.tv_chance + 5 * check.tv_error


def test_golden_membership_distance():
    chain = Chain.repeated((0.5, 0.3, 0.2), (0.2, 0.6, 0.2), 1)
    found = {check.parameters: check for check in (check_rule(rule, chain, 100, Streams(0)) for rule in rules())}
    assert found["top_k 2"].tv_exact == pytest.approx(0.36, abs=1e-12)
    assert found["top_k 2"].acceptance == pytest.approx(0.8)


def test_errata_values():
    found = {erratum.statement: erratum for erratum in errata()}
    expected = {
        "K = 5, alpha 0.6: 2.31 tokens per step": ("wrong", 2.3834),
        "K = 5, alpha 0.7: 2.77 tokens per step": ("wrong", 2.9412),
        "K = 5, alpha 0.8: 3.69 tokens per step": ("right", 3.6893),
        "K = 5, alpha 0.9: 4.69 tokens per step": ("right", 4.6856),
        "K = 4, alpha 0.6: 1.9 tokens per step": ("wrong", 2.3056),
        "K = 8, alpha 0.8: 4.0 tokens per step": ("wrong", 4.3289),
    }
    for statement, (verdict, value) in expected.items():
        assert (found[statement].verdict, round(found[statement].value, 4)) == (verdict, value)
    assert "the value of K = 4" in found["K = 5, alpha 0.6: 2.31 tokens per step"].correct
    (formula,) = (erratum for erratum in found.values() if "plus a^K" in erratum.statement)
    assert "2.3056, that formula gives 1.4352" in formula.correct
    (contradiction,) = (erratum for erratum in found.values() if erratum.verdict == "contradictory")
    assert contradiction.value == pytest.approx(0.36)
    (cost,) = (erratum for erratum in found.values() if erratum.verdict == "not in general")
    assert "c = 0.05: 1.15 / 1.25 / 1.40" in cost.correct
