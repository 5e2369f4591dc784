"""The closed forms against the golden values of the literature, to the printed digits."""

import math

import numpy as np
import pytest

from sim import theory
from sim.theory import NO_DRAFTER, FluidLoad, PassTimes

OMEGA = {
    1: (1.5000, 1.6000, 1.7000, 1.8000, 1.9000, 1.9500),
    2: (1.7500, 1.9600, 2.1900, 2.4400, 2.7100, 2.8525),
    3: (1.8750, 2.1760, 2.5330, 2.9520, 3.4390, 3.7099),
    4: (1.9375, 2.3056, 2.7731, 3.3616, 4.0951, 4.5244),
    5: (1.9688, 2.3834, 2.9412, 3.6893, 4.6856, 5.2982),
    7: (1.9922, 2.4580, 3.1412, 4.1611, 5.6953, 6.7316),
    8: (1.9961, 2.4748, 3.1988, 4.3289, 6.1258, 7.3950),
    15: (2.0000, 2.4993, 3.3223, 4.8593, 8.1470, 11.1975),
}
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HALF_DIGIT = 0.5e-4 * 1.001


@pytest.mark.parametrize("k", OMEGA)
def test_expected_tokens_table(k):
    for alpha, golden in zip(ALPHAS, OMEGA[k], strict=True):
        assert theory.expected_tokens(alpha, k) == pytest.approx(golden, abs=HALF_DIGIT)
        assert theory.expected_tokens(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha), rel=1e-12)
    assert theory.expected_tokens(1.0, k) == k + 1
    assert theory.expected_tokens(0.0, k) == 1


@pytest.mark.parametrize(
    ("alpha", "k", "variance"), [(0.8, 4, 2.5700), (0.8, 5, 3.8641), (0.6, 4, 1.9626), (0.7, 3, 1.5349)]
)
def test_variance(alpha, k, variance):
    assert theory.variance_of_tokens(alpha, k) == pytest.approx(variance, abs=HALF_DIGIT)
    assert theory.emitted_distribution(alpha, k).sum() == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(("alpha", "growth"), [(0.6, 2.622), (0.8, 1.694), (0.9, 1.334)])
def test_operations_growth(alpha, growth):
    assert theory.operations_growth(alpha, 5, 0.05) == pytest.approx(growth, abs=0.5e-3)


BEST_K = [
    (0.02, 0.7, 8, 2.758), (0.02, 0.8, 11, 3.817), (0.05, 0.6, 4, 1.921), (0.05, 0.7, 6, 2.353),
    (0.05, 0.8, 8, 3.092), (0.05, 0.9, 13, 4.674), (0.1, 0.6, 3, 1.674), (0.1, 0.7, 4, 1.981),
    (0.1, 0.8, 6, 2.470), (0.1, 0.9, 10, 3.431),
]  # fmt: skip


@pytest.mark.parametrize(("cost", "alpha", "k", "gain"), BEST_K)
def test_best_k_and_gain(cost, alpha, k, gain):
    best, value = theory.best_k(alpha, cost)
    assert best == k
    assert value == pytest.approx(gain, abs=0.5e-3)
    assert value >= (1 + alpha) / (1 + cost)  # Leviathan et al., Corollary 3.9


STEPS = [
    (0.8, 4, 8, 2.5932), (0.8, 4, 128, 38.2446), (0.8, 4, 512, 152.4759), (0.6, 4, 128, 55.5510),
    (0.8, 5, 128, 34.9305), (0.7, 3, 128, 50.5604), (0.7, 3, 64, 25.2939),
]  # fmt: skip


@pytest.mark.parametrize(("alpha", "k", "length", "mean"), STEPS)
def test_steps_of_finite_outputs(alpha, k, length, mean):
    assert theory.iid_steps_of_output(alpha, k, length).mean == pytest.approx(mean, abs=HALF_DIGIT)
    if length >= 32:
        assert theory.renewal_steps(alpha, k, length) == pytest.approx(mean, abs=HALF_DIGIT)


@pytest.mark.parametrize(("alpha", "k", "length", "variance"), [(0.8, 4, 128, 8.7204), (0.7, 3, 64, 6.0453)])
def test_variance_of_steps(alpha, k, length, variance):
    assert theory.iid_steps_of_output(alpha, k, length).variance == pytest.approx(variance, abs=HALF_DIGIT)


def test_short_answers_lose():
    assert 7 / theory.iid_steps_of_output(0.8, 4, 8).mean == pytest.approx(2.70, abs=0.005)
    assert theory.iid_steps_of_output(0.8, 4, 1) == (0.0, 0.0)
    assert theory.iid_steps_of_output(0.8, 4, 2) == (1.0, 1.0)


@pytest.mark.parametrize(("batch", "accepted"), [(1, 2.689), (2, 1.587), (4, 0.686), (8, 0.202), (16, 0.029)])
def test_lock_step_minimum(batch, accepted):
    assert theory.lock_step_accepted(0.8, 5, batch) == pytest.approx(accepted, abs=0.5e-3)


def test_three_means_of_a_mixture():
    omegas = np.array([theory.expected_tokens(alpha, 5) for alpha in (0.5, 0.9)])
    assert omegas.mean() == pytest.approx(3.3272, abs=HALF_DIGIT)
    assert theory.expected_tokens(0.7, 5) == pytest.approx(2.9412, abs=HALF_DIGIT)
    assert 1 / (1 / omegas).mean() == pytest.approx(2.7726, abs=HALF_DIGIT)


@pytest.mark.parametrize(("a", "b", "omega"), [(7, 3, 3.1154), (3.5, 1.5, 3.2520), (1.4, 0.6, 3.5319)])
def test_beta_acceptance(a, b, omega):
    assert theory.beta_expected_tokens(a, b, 5) == pytest.approx(omega, abs=HALF_DIGIT)


RATES = [(0.5379, 5, 0.8), (0.388, 3, 0.5963), (0.3116, 8, 0.7307), (0.7, 4, 0.8623)]


@pytest.mark.parametrize(("rate", "k", "alpha"), RATES)
def test_alpha_from_acceptance_rate(rate, k, alpha):
    assert theory.alpha_from_acceptance_rate(rate, k) == pytest.approx(alpha, abs=HALF_DIGIT)


EXPERTS = [
    (8, 2, 1, 2, 0), (8, 2, 2, 3.5, 2), (8, 2, 4, 5.47, 2), (8, 2, 8, 7.20, 2), (8, 2, 16, 7.92, 2),
    (128, 8, 1, 8, 0), (128, 8, 4, 29.12, 2), (128, 8, 8, 51.62, 2), (128, 8, 32, 111.77, 2), (128, 8, 64, 125.94, 2),
    (256, 8, 1, 8, 0), (256, 8, 6, 44.4, 1), (256, 8, 16, 101.96, 2), (256, 8, 64, 222.44, 2), (256, 8, 256, 255.92, 2),
]  # fmt: skip


@pytest.mark.parametrize(("experts", "top_k", "tokens", "distinct", "digits"), EXPERTS)
def test_distinct_experts(experts, top_k, tokens, distinct, digits):
    assert theory.distinct_experts(tokens, experts, top_k) == pytest.approx(distinct, abs=0.501 * 10.0**-digits)


def test_correlated_routing_reads_fewer_experts():
    assert theory.distinct_experts(6, 256, 8, correlation=1.0) == pytest.approx(8)
    assert theory.distinct_experts(6, 256, 8, 0.5) == pytest.approx(theory.distinct_experts(3.5, 256, 8))
    assert theory.distinct_experts(0, 256, 8) == 0


BANDWIDTH, PEAK, KV, DRAFT_KV = 3.35e12, 989e12, 131072, 4096
TOKEN_S = 2 * 8.03e9 / PEAK


def llama(context, **fixed):
    return PassTimes(16.06e9 / BANDWIDTH, context * KV / BANDWIDTH, TOKEN_S, **fixed)


def eagle(context, **other):
    return PassTimes(0.5e9 / BANDWIDTH, context * DRAFT_KV / BANDWIDTH, **other)


ROOFLINE = [
    (128, 0.6, 3, 80.0, 426.9, 193.0, 183.1), (128, 0.7, 4, 62.9, 426.9, 197.5, 186.9),
    (128, 0.8, 5, 51.9, 426.9, 224.0, 212.4), (256, 0.7, 4, 67.4, 770.4, 248.9, 232.3),
    (512, 0.7, 4, 78.4, math.inf, 518.5, 451.1),
]  # fmt: skip


@pytest.mark.parametrize(("context", "alpha", "k", "verify_ridge", "plain_ridge", "free", "drafted"), ROOFLINE)
def test_roofline_break_even(context, alpha, k, verify_ridge, plain_ridge, free, drafted):
    target, omega = llama(context), theory.expected_tokens(alpha, k)
    assert theory.ridge_batch(target, k + 1) == pytest.approx(verify_ridge, abs=0.0501)
    assert theory.ridge_batch(target, 1) == pytest.approx(plain_ridge, abs=0.0501)
    for drafter, golden in ((NO_DRAFTER, free), (eagle(context), drafted)):
        result = theory.roofline_break_even(target, drafter, omega, k)
        assert result.status == "crosses"
        assert result.value == pytest.approx(golden, abs=0.0501)
        assert [crossing.direction for crossing in result.crossings] == ["stops_paying"]
        closed = (omega * target.weights_s - k * drafter.weights_s) / (
            (k + 1) * TOKEN_S + k * drafter.kv_s - omega * target.kv_s
        )
        assert result.value == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize(("alpha", "k", "context"), [(0.6, 3, 797), (0.7, 4, 784), (0.8, 5, 705)])
def test_context_from_which_it_always_pays(alpha, k, context):
    omega = theory.expected_tokens(alpha, k)
    found = theory.never_stops_context_tokens(BANDWIDTH, TOKEN_S, KV, DRAFT_KV, omega, k)
    assert found == pytest.approx(context, abs=0.5)
    assert theory.roofline_break_even(llama(context - 2), eagle(context - 2), omega, k).status == "crosses"
    for longer in (context + 2, 1024, 4096):
        assert theory.roofline_break_even(llama(longer), eagle(longer), omega, k).status == "always"
        assert theory.roofline_break_even(llama(longer), NO_DRAFTER, omega, k).value == math.inf


ADDITIVE = [
    (128, 0.6, 3, 213.0), (128, 0.7, 4, 280.3), (128, 0.8, 5, 474.7),
    (512, 0.6, 3, 579.3), (512, 0.7, 4, 1623.3), (512, 0.8, 5, math.inf),
]  # fmt: skip


@pytest.mark.parametrize(("context", "alpha", "k", "batch"), ADDITIVE)
def test_additive_break_even(context, alpha, k, batch):
    drafter = eagle(context, fixed_s=0.1e-3, token_s=0.5e9 / PEAK)
    result = theory.additive_break_even(llama(context, fixed_s=0.5e-3), drafter, theory.expected_tokens(alpha, k), k)
    assert result.value == pytest.approx(batch, abs=0.0501)
    assert result.status == ("crosses" if math.isfinite(batch) else "always")


@pytest.mark.parametrize("context", [128, 256, 512])
@pytest.mark.parametrize(("alpha", "k"), [(0.6, 3), (0.7, 4), (0.8, 5)])
def test_break_even_equals_a_scan_over_batches(context, alpha, k):
    target, drafter, omega = llama(context), eagle(context), theory.expected_tokens(alpha, k)

    def pays(batch):
        plain = theory.roofline_pass_s(target, batch, 1)
        drafting = k * theory.additive_pass_s(drafter, batch, 1)
        return omega * plain > theory.roofline_pass_s(target, batch, k + 1) + drafting

    last = max((batch for batch in range(1, 3000) if pays(batch)), default=0)
    assert last == math.floor(theory.roofline_break_even(target, drafter, omega, k).value)


FLUID = FluidLoad(5e-3, 20e-6, 1e-3, theory.expected_tokens(0.7, 4), 4)


@pytest.mark.parametrize(("prefill", "load"), [(0, 20699), (10_000, 16559), (25_000, 10349)])
def test_fluid_break_even_load_and_its_constant_batch(prefill, load):
    fluid = FluidLoad(5e-3, 20e-6, 1e-3, FLUID.tokens_per_step, 4, prefill)
    assert fluid.break_even().value == pytest.approx(load, abs=0.6)
    assert fluid.break_even_batch() == pytest.approx(176.6, abs=0.05)
    at = fluid.break_even().value
    assert fluid.plain_itl_s(at) == pytest.approx(fluid.speculative_itl_s(at), rel=1e-12)
    assert at * fluid.plain_itl_s(at) == pytest.approx(fluid.break_even_batch(), rel=1e-12)


SPEEDUPS = [(5e3, 2.10), (10e3, 1.85), (15e3, 1.52), (20e3, 1.07), (20.7e3, 1.00), (24e3, 0.60)]


@pytest.mark.parametrize(("load", "speedup"), SPEEDUPS)
def test_fluid_speed_up(load, speedup):
    assert FLUID.plain_itl_s(load) / FLUID.speculative_itl_s(load) == pytest.approx(speedup, abs=0.00501)


def test_fluid_capacity_falls_by_omega_over_k_plus_one():
    assert FLUID.speculative_capacity / FLUID.plain_capacity == pytest.approx(FLUID.tokens_per_step / 5)
    assert FLUID.plain_itl_s(FLUID.plain_capacity * 1.0001) == math.inf
    assert FLUID.speculative_itl_s(FLUID.speculative_capacity * 1.0001) == math.inf


def test_md1_and_mmc_waits():
    assert [theory.md1_wait(rho, 1.0) for rho in (0.5, 0.8, 0.9)] == pytest.approx([0.5, 2.0, 4.5])
    golden = {(2, 0.7): 0.9608, (4, 0.7): 0.3572, (4, 0.9): 1.9694, (8, 0.8): 0.2860, (16, 0.9): 0.3696}
    for (servers, rho), wait in golden.items():
        assert theory.mmc_wait(servers, rho, 1.0) == pytest.approx(wait, abs=HALF_DIGIT)


PK = [(0.8, 4, 128, 0.5, 0.20231), (0.8, 4, 128, 0.8, 0.80923), (0.7, 3, 64, 0.5, 0.13758), (0.7, 3, 64, 0.8, 0.55031)]


@pytest.mark.parametrize(("alpha", "k", "length", "rho", "wait"), PK)
def test_pollaczek_khinchine_with_speculation(alpha, k, length, rho, wait):
    steps, first, step = theory.iid_steps_of_output(alpha, k, length), 0.020, 0.010
    mean = first + step * steps.mean
    second = step**2 * steps.variance + mean**2
    assert theory.pollaczek_khinchine_wait(rho / mean, mean, second) == pytest.approx(wait, abs=0.5e-5)


ERRATA_WRONG = [(0.6, 5, 2.31, 2.3834), (0.7, 5, 2.77, 2.9412), (0.6, 4, 1.9, 2.3056), (0.8, 8, 4.0, 4.3289)]


@pytest.mark.parametrize(("alpha", "k", "wrong", "right"), ERRATA_WRONG)
def test_errata_found_in_the_wild(alpha, k, wrong, right):
    value = theory.expected_tokens(alpha, k)
    assert value == pytest.approx(right, abs=HALF_DIGIT)
    assert abs(value - wrong) > 0.05
    assert value != pytest.approx(sum(alpha**i for i in range(1, k + 1)) + alpha**k, abs=0.05)  # the wrong formula


COST_OF_NOTHING = {0.02: (1.06, 1.10, 1.16), 0.05: (1.15, 1.25, 1.40), 0.1: (1.30, 1.50, 1.80), 0.2: (1.6, 2.0, 2.6)}


@pytest.mark.parametrize("cost", COST_OF_NOTHING)
def test_zero_acceptance_costs_more_than_ten_per_cent_in_general(cost):
    for k, ratio in zip((3, 5, 8), COST_OF_NOTHING[cost], strict=True):
        assert 1 / theory.improvement(0.0, k, cost) == pytest.approx(ratio, abs=1e-12)
