"""Every rule against its source's arithmetic, worked out by hand or by exhaustive search."""

import runpy
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sim.draft_length.acceptance_gate import AcceptanceGate
from sim.draft_length.confidence import Confidence
from sim.draft_length.ema import Ema, Slot
from sim.draft_length.goodput import Goodput, GoodputRule
from sim.draft_length.heuristic import Heuristic
from sim.draft_length.oracle import Oracle
from sim.draft_length.p_min import PMin
from sim.draft_length.smart_spec import SmartSpec, SmartSpecRule, fit_step_time

h = runpy.run_path(str(Path(__file__).with_name("rule_harness.py")))
ALPHA, load, other, outcome, step_seconds = (h[name] for name in ("ALPHA", "load", "other", "outcome", "step_seconds"))


@pytest.fixture
def setting():
    return h["made_up"]()


# ---- SGLang's moving average ------------------------------------------------------------------------------------


def ks_of(rule, num_seqs: int, accepted: list[float]) -> list[int]:
    """K after each step of a batch in which four requests accept so many drafts on average."""
    ks = []
    for mean in accepted:
        total = round(4 * mean)
        each = np.array([total // 4 + (i < total % 4) for i in range(4)])
        rule.observe(outcome(num_seqs, np.full(4, 7), each))
        ks.append(rule.choose(load(num_seqs)).drafts)
    return ks


def test_ema_by_hand(setting) -> None:
    """Candidates 1, 3, 5; weight 1/2; decisions after steps 2, 4, 6, ...; start at 5 with average 4.

    Two steps that accept 0: average 1. Down while <= prev - 0.5: 1 <= 2.5, to 3; 1 > 0.5, stay there.
    Two more: average 1/4 <= 0.5, to 1. Two that accept 4: 2.125, 3.0625. Up while > current - 0.5: past 0.5 and 2.5,
    to 5.
    """
    slots = [Slot(batch_size=1, candidate_steps=[1, 3, 5])]
    rule = Ema(slots=slots, ema_alpha=0.5, warmup_batches=0, update_interval=2).bind(setting)
    assert ks_of(rule, 1, [0, 0, 0, 0, 4, 4]) == [5, 3, 3, 1, 1, 5]


def test_ema_with_hysteresis_by_hand(setting) -> None:
    """Candidates 1, 3; start at 3 with average 2. Accepting 0, 0: 0.5, above 1 - 0.5 - 0.25, stay. Accepting 0, 0:
    1/8, to 1.

    Accepting 1.5, 1.5: 1.15625, not above 1 - 0.5 + 1, stay; then 1.41, stay; accepting 3, 3: 2.6, to 3.
    """
    slots = [Slot(batch_size=1, candidate_steps=[1, 3], down_hysteresis=-0.25, up_hysteresis=1.0)]
    rule = Ema(slots=slots, ema_alpha=0.5, warmup_batches=0, update_interval=2).bind(other(setting, max_draft_tokens=3))
    assert ks_of(rule, 1, [0, 0, 0, 0, 1.5, 1.5, 1.5, 1.5, 3, 3]) == [3, 3, 3, 1, 1, 1, 1, 1, 1, 3]


def test_ema_of_sglang_by_default(setting) -> None:
    """Slots of their own, ten steps of warm-up, then every fifth; from 0 it always probes; 64 and more never draft."""
    rule = Ema().bind(other(setting, max_draft_tokens=7))
    assert [rule.choose(load(n)).drafts for n in (1, 7, 8, 31, 32, 63, 64, 200)] == [7, 7, 1, 1, 1, 1, 0, 0]
    assert ks_of(rule, 40, [0.0] * 15) == [1] * 14 + [0]
    assert ks_of(rule, 40, [0.0] * 5) == [0] * 4 + [1]  # the probe
    assert rule.choose(load(8)).drafts == 1  # the other slots have seen nothing
    assert rule.choose(load(64)).drafts == 0


# ---- TensorRT-LLM's gate ----------------------------------------------------------------------------------------


def test_gate_closes_once_and_for_all(setting) -> None:
    rule = AcceptanceGate(acceptance_rate_window_size=3, acceptance_rate_threshold=0.5).bind(setting)
    for rate, closed in ((0.0, False), (0.2, False), (1.0, True)):  # mean of 3: 0.4
        rule.observe(outcome(2, [5, 5], [round(5 * rate)] * 2))
        assert rule.closed == closed
        assert rule.choose(load(2)).drafts == (0 if closed else 5)
    for _ in range(50):
        rule.observe(outcome(2, [5, 5], [5, 5]))
        assert rule.choose(load(2)).drafts == 0


def test_gate_averages_the_last_steps_that_drafted(setting) -> None:
    rule = AcceptanceGate(acceptance_rate_window_size=2, acceptance_rate_threshold=0.5).bind(setting)
    for rate in (1.0, 0.2, 0.8, 0.2):  # windows: 0.6, 0.5, 0.5
        rule.observe(outcome(2, [5, 5], [round(5 * rate)] * 2))
        rule.observe(outcome(2, [0, 0], [0, 0]))
    assert not rule.closed
    rule.observe(outcome(2, [5, 5], [0, 0]))
    assert rule.closed


def test_gate_follows_a_schedule_while_open(setting) -> None:
    spec = AcceptanceGate(
        acceptance_rate_window_size=2, acceptance_rate_threshold=0.5, draft_len_schedule=[[2, 4], [8, 1]]
    )
    assert [spec.bind(setting).choose(load(n)).drafts for n in (1, 2, 3, 8, 9)] == [4, 4, 1, 1, 0]
    assert "K = 4" in spec.wrong_for(3)


# ---- Hugging Face, llama.cpp -------------------------------------------------------------------------------------


def test_heuristic_plus_two_minus_one_per_request(setting) -> None:
    rule = Heuristic(num_assistant_tokens=2).bind(setting)
    rule.observe(outcome(3, [2, 2, 0], [2, 1, 0], rows=[4, 9, 11]))
    rule.observe(outcome(2, [4, 1], [4, 0], rows=[4, 9]))  # 6 is more than there may be; never below 1
    assert rule.choose(load(12)).drafts[[4, 9, 11]].tolist() == [5, 1, 2]


def test_the_token_that_ends_a_draft_is_verified_by_hugging_face_and_dropped_by_llama_cpp(setting) -> None:
    sure = np.array([0, 1, 3, 5], np.uint8)
    fixed = other(setting, confident=lambda threshold, sharpness: sure)
    batch = load(4)._replace(cursor=np.arange(4))
    assert Confidence(sharpness=0.5).bind(fixed).choose(batch).drafts.tolist() == [1, 2, 4, 5]
    llama = PMin(p_min=0.5, sharpness=0.5, n_min=2).bind(fixed).choose(batch)
    assert llama.drafts.tolist() == [0, 0, 3, 5]
    assert llama.passes.tolist() == [1, 2, 4, 5]


# ---- goodput ------------------------------------------------------------------------------------------------------


def exhaustive(num_seqs: int, rates: np.ndarray, context: int) -> int:
    """The K of most tokens per second, the smallest of equals."""
    goodput = [
        (1 + rates[:k].sum()) / step_seconds(num_seqs, num_seqs * context, num_seqs * k, k)
        for k in range(len(rates) + 1)
    ]
    return int(np.argmax(goodput))


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.55, 0.7, 0.9])
def test_goodput_with_exact_costs_and_true_rates_is_exhaustive_search(setting, alpha: float) -> None:
    rates = alpha ** np.arange(1, 6)
    known = other(setting, survival=lambda k: alpha ** np.arange(1, k + 1))
    rule = Goodput(batch_sizes=list(range(1, 257)), context_tokens=700).bind(known)
    chosen = [rule.choose(load(n)).drafts for n in range(1, 257)]
    assert chosen == [exhaustive(n, rates, 700) for n in range(1, 257)]
    assert max(chosen) > min(chosen) or alpha in (0.05, 0.9)


def test_goodput_interpolates_over_batch_sizes_then_over_k() -> None:
    """Measured at batches 1 and 9 and K 0 and 2: batch 5, K 1 is the mean of the four corners."""
    rule = GoodputRule([1, 9], [0, 2], np.array([[1.0, 3.0], [5.0, 11.0]]), np.array([0.5, 0.25]), None)
    assert rule._itl(5).tolist() == [3.0, 5.0, 7.0]
    assert rule._itl(1).tolist() == [1.0, 2.0, 3.0]
    assert rule._itl(50).tolist() == [5.0, 8.0, 11.0]


def test_goodput_prefers_the_smaller_of_equals() -> None:
    rule = GoodputRule([1], [0, 1], np.array([[2.0, 3.0]]), np.array([0.5]), None)
    assert rule.best(1) == 0


def test_goodput_estimates_after_ten_steps(setting) -> None:
    rule = Goodput(acceptance_rate_per_pos=[1.0] * 5).bind(setting)
    for _ in range(10):
        rule.observe(outcome(2, [5, 5], [0, 0]))
        assert rule.choose(load(2)).drafts == 5
    rule.observe(outcome(2, [5, 5], [0, 0]))
    assert rule.choose(load(2)).drafts == 0
    kept = Goodput(acceptance_rate_per_pos=[1.0] * 5, online=False).bind(setting)
    for _ in range(30):
        kept.observe(outcome(2, [5, 5], [0, 0]))
    assert kept.choose(load(2)).drafts == 5


def test_goodput_rates_are_accepted_over_drafted_by_position(setting) -> None:
    rule = Goodput(warmup_steps=0).bind(setting)
    rule.observe(outcome(4, [3, 3, 1, 0], [3, 0, 1, 0]))
    assert rule._rates.tolist() == [2 / 3, 1 / 2, 1 / 2, 0.0, 0.0]


# ---- SmartSpec ----------------------------------------------------------------------------------------------------


def test_step_time_is_fitted_exactly_where_it_is_linear(setting) -> None:
    line = np.array([2e-7, 3e-5, 4e-3, 5e-4])

    def seconds(num_seqs, kv_tokens, drafts, passes):
        return float(line @ (kv_tokens, num_seqs + drafts, 1.0, passes))

    assert fit_step_time(other(setting, step_seconds=seconds)) == pytest.approx(line, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_smart_spec_finds_the_best_drafts_of_all(setting, seed: int) -> None:
    rng = np.random.Generator(np.random.Philox(seed))
    n, most = int(rng.integers(1, 5)), 3
    alpha = rng.uniform(0.0, 1.0, n)
    line = np.array([1e-7, rng.uniform(0.1, 2.0), rng.uniform(0.5, 4.0), rng.uniform(0.0, 1.0)])
    rule = SmartSpecRule(line, 0.5, 0.1, most, n)
    rule._alpha = alpha

    def goodput(drafts) -> float:
        tokens = sum(sum(a**d for d in range(k + 1)) for a, k in zip(alpha, drafts, strict=True))
        return tokens / float(line @ (n * 1000, n + sum(drafts), 1.0, max(drafts)))

    best = max(goodput(drafts) for drafts in product(range(most + 1), repeat=n))
    assert goodput(rule.choose(load(n)).drafts.tolist()) == pytest.approx(best, rel=1e-12)


def test_smart_spec_learns_each_request_and_leaves_out_who_opted_out(setting) -> None:
    rule = SmartSpec(weight=0.5).bind(setting)
    assert rule._alpha[0] == pytest.approx(ALPHA)
    rule.observe(outcome(2, [4, 4], [4, 1], rows=[1, 2]))  # judged 4 of 4, and 1 of 2
    assert rule._alpha[[1, 2]].tolist() == pytest.approx([0.85, 0.6])
    batch = load(2)._replace(speculates=np.array([1, 0]))
    assert rule.choose(batch).drafts[1] == 0


# ---- the oracle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_seqs", [1, 4, 30, 120, 250])
def test_oracle_takes_the_most_tokens_per_second_of_the_next_step(setting, num_seqs: int) -> None:
    batch = load(num_seqs, left=3)
    emitted = [np.minimum(setting.taken(batch.cursor, np.full(num_seqs, k)) + 1, 3).sum() for k in range(6)]
    kv = num_seqs * 1000
    rates = [emitted[k] / step_seconds(num_seqs, kv, num_seqs * k, k) for k in range(6)]
    assert Oracle().bind(setting).choose(batch).drafts == int(np.argmax(rates))
    each = Oracle(per_request=True).bind(setting).choose(batch).drafts
    tokens = np.minimum(setting.taken(batch.cursor, each) + 1, 3).sum()
    assert tokens / step_seconds(num_seqs, kv, int(each.sum()), int(each.max())) >= max(rates)


def test_oracle_drafts_nothing_for_a_batch_that_ends(setting) -> None:
    assert Oracle().bind(setting).choose(load(3, left=0)).drafts == 0
    assert Oracle().bind(setting).choose(load(0)).drafts == 0
