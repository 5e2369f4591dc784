"""`explain` against arithmetic on paper, and against the simulation where both can answer."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import CapacityError, ScenarioError
from sim.experiment.analytic import analytic_curve, analytic_document, decode_step
from sim.experiment.explain import Asked, demand_of, explain, trust
from sim.experiment.explanation import ArmFacts, Explanation
from sim.experiment.landmarks import kv_equals_weights, prefill_of, ridge_tokens
from sim.experiment.step_table import StepRow
from sim.metrics.details import mean_decode_context
from sim.metrics.summary import Measure, measure_run
from sim.metrics.window import Loop
from sim.report.explain import explanation_text
from sim.scenario.build import set_up, simulate
from sim.scenario.files import shipped_names
from sim.scenario.load import LoadedScenario, load_scenario

Load = Callable[..., LoadedScenario]

EAGLE: dict[str, Any] = {"method": "eagle3", "num_speculative_tokens": 3}
IID: dict[str, Any] = {"kind": "iid", "rate": 0.7}


def arms(**arms: dict[str, Any]) -> dict[str, Any]:
    return {"plain": {}, **arms}


def row(found: Explanation, batch: int, k: int, table: int = 0) -> StepRow:
    (one,) = [r for r in found.tables[table].rows if (r.batch, r.num_draft_tokens) == (batch, k)]
    return one


def arm(found: Explanation, name: str) -> ArmFacts:
    return next(one for one in found.arms if one.name == name)


def test_waterfall_adds_up_and_splits_the_kv(small: Load) -> None:
    found = explain(small(cost_model="roofline"), Asked(contexts=(500, 1000)))
    for each in found.arms:
        m = each.memory
        spent = m.target_weights_bytes + m.drafter_weights_bytes + m.activations_bytes + m.graphs_bytes
        assert spent + m.kv_pool_bytes == m.usable_bytes
        per_token = m.target_kv_bytes_per_token + m.drafter_kv_bytes_per_token
        assert m.kv_capacity_tokens == m.kv_pool_bytes // (16 * per_token) * 16
    plain, fast = arm(found, "plain").memory, arm(found, "k3").memory
    assert (plain.drafter_weights_bytes, plain.drafter_kv_bytes_per_token, plain.lookahead_tokens) == (0, 0, 0)
    assert plain.target_kv_bytes_per_token == fast.target_kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert fast.drafter_kv_bytes_per_token == 2 * 8 * 128 * 2  # one layer
    # 500 + the new token = 501 tokens = 32 blocks of 16; with 3 drafts and 3 slots ahead 507 = 32, 1007 = 63
    assert [c.requests for c in plain.capacity] == [plain.kv_capacity_tokens // 16 // blocks for blocks in (32, 63)]
    assert [c.requests for c in fast.capacity] == [fast.kv_capacity_tokens // 16 // blocks for blocks in (32, 63)]


def test_whole_experts_are_told(small: Load) -> None:
    """128 experts on 2 GPUs; nothing is said of slices, or on one GPU."""
    engine = {"tensor_parallel_size": 2, "enable_expert_parallel": True, "max_model_len": 4096}
    spread = small(model="qwen3-30b-a3b", cost_model="roofline", arms={"plain": {}}, engine=engine)
    found = explain(spread, Asked(batches=(1, 64)))
    assert found.deployed.experts_per_gpu == 64
    assert "expert parallel: 64 whole experts of every layer on each GPU" in explanation_text(found)
    sliced = small(
        model="qwen3-30b-a3b",
        cost_model="roofline",
        arms={"plain": {}},
        engine=engine | {"enable_expert_parallel": False},
    )
    split = explain(sliced, Asked(batches=(1, 64)))
    assert split.deployed.experts_per_gpu is None
    assert row(found, 1, 0).op_ms["linear"] > row(split, 1, 0).op_ms["linear"]


def test_constant_times_give_the_textbook_rows(small: Load) -> None:
    found = explain(small(), Asked(batches=(1, 64), ks=(0, 1, 3)))
    for batch in (1, 64):
        for k in (0, 1, 3):
            one, omega = row(found, batch, k), sum(0.7**i for i in range(k + 1))
            assert (one.total_ms, one.draft_ms, one.verify_token_us) == pytest.approx((10.0 + k, k, 0.0), rel=1e-12)
            assert one.tokens_per_step == pytest.approx(omega, rel=1e-12)
            assert one.ms_per_token == pytest.approx((10.0 + k) / omega, rel=1e-12)
            assert one.speedup == one.speedup_low == one.speedup_high == pytest.approx(10 * omega / (10 + k), rel=1e-12)
    assert found.cost.trust == "exact"
    assert found.ridge_tokens is None
    assert [at.context_tokens for at in found.kv_equals_weights] == [None, None]


def test_rows_are_the_steps_of_the_arms(small: Load) -> None:
    loaded = small(cost_model="roofline")
    found = explain(loaded, Asked(batches=(1, 32, 200), contexts=(700,)))
    assert {r.num_draft_tokens for r in found.tables[0].rows} == {0, 1, 2, 3}
    assert (found.tables[0].arms, found.tables[0].arm_ks) == (("k3",), (3,))
    plain, fast = (set_up(loaded.scenario, name, Path()) for name in ("plain", "k3"))
    for batch in (1, 32, 200):
        one, step = row(found, batch, 3), decode_step(fast, batch, 700)
        assert one.total_ms == pytest.approx(step.seconds() * 1e3, rel=1e-12)
        assert one.total_ms == pytest.approx(one.target_ms + one.draft_ms + one.host_ms, rel=1e-12)
        assert sum(one.op_ms.values()) == pytest.approx(one.target_ms, rel=1e-12)
        assert row(found, batch, 0).total_ms == pytest.approx(decode_step(plain, batch, 700).seconds() * 1e3)
        assert row(found, batch, 0).speedup == 1.0
        # one token more for each sequence is the next row's target
        grown = one.target_ms + 0.0
        before = row(found, batch, 2)
        assert before.target_ms + before.verify_token_us * batch / 1e3 == pytest.approx(grown, rel=1e-9)
        assert one.speedup_low is not None
        assert one.speedup is not None
        assert one.speedup_high is not None
        assert one.speedup_low < one.speedup < one.speedup_high


def test_batches_that_do_not_fit_are_marked(small: Load) -> None:
    limits = {"num_gpu_blocks_override": 200, "max_num_seqs": 64, "max_model_len": 1024}
    found = explain(small(engine=limits), Asked(batches=(1, 10, 11), contexts=(300,)))
    # 307 tokens with drafts and look-ahead = 20 blocks, so 10 fit; plain: 301 tokens = 19 blocks
    assert [row(found, batch, 3).fits for batch in (1, 10, 11)] == [True, True, False]
    found = explain(small(engine=limits), Asked(batches=(10, 65), contexts=(10,)))
    assert [row(found, batch, 0).fits for batch in (10, 65)] == [True, False]
    assert arm(found, "plain").memory.kv_pool_pinned


def test_arms_that_differ_in_k_alone_share_a_table(small: Load) -> None:
    table = {"num_speculative_tokens_per_batch_size": [[1, 8, 5], [9, 64, 2]], "num_speculative_tokens": 5}
    several = arms(
        k3={"speculative_config": EAGLE, "acceptance": IID},
        by_batch={"speculative_config": EAGLE | table, "acceptance": IID},
        other={"speculative_config": EAGLE, "acceptance": {"kind": "iid", "rate": 0.5}},
    )
    found = explain(small(arms=several), Asked(batches=(1,)))
    assert [(t.arms, t.arm_ks) for t in found.tables] == [(("k3", "by_batch"), (2, 3, 5)), (("other",), (3,))]
    assert {r.num_draft_tokens for r in found.tables[0].rows} == set(range(6))
    assert arm(found, "by_batch").drafts_nothing_at == ()


def test_k_0_by_table_is_told_apart_from_plain(small: Load) -> None:
    table = {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 0]]}
    found = explain(small(arms=arms(by_batch={"speculative_config": EAGLE | table, "acceptance": IID})), Asked())
    assert arm(found, "by_batch").drafts_nothing_at == ((9, 1024),)  # the tail inherits, up to max_num_seqs
    assert found.tables[0].arm_ks == (3,)
    (answer,) = arm(found, "by_batch").break_even
    assert answer.document["status"] == "crosses"
    assert answer.largest_batch is not None
    assert answer.largest_batch[0] == pytest.approx(10 / 11)  # the drafter's first pass, for nothing


def test_plain_alone_has_a_table_too(small: Load) -> None:
    found = explain(small(arms={"plain": {}}), Asked(batches=(4,)))
    assert [(r.batch, r.num_draft_tokens, r.speedup) for r in found.tables[0].rows] == [(4, 0, 1.0)]


def test_k_beyond_the_acceptance_has_times_but_no_gain(small: Load) -> None:
    known = {"kind": "per_position", "rates": [0.8, 0.6, 0.4]}
    one = arms(k3={"speculative_config": EAGLE, "acceptance": known})
    found = explain(small(arms=one), Asked(batches=(1,), ks=(3, 4)))
    assert row(found, 1, 3).tokens_per_step == pytest.approx(2.8)
    assert (row(found, 1, 4).total_ms, row(found, 1, 4).tokens_per_step, row(found, 1, 4).speedup) == (14.0, None, None)
    (rates,) = arm(found, "k3").acceptance
    assert (rates.tokens_per_step, rates.rates) == (pytest.approx(2.8), pytest.approx((0.8, 0.6, 0.4)))
    assert rates.conditional_rates == pytest.approx((0.8, 0.75, 2 / 3))


def test_break_even_is_the_one_of_the_results(small: Load) -> None:
    loaded = small(
        cost_model="roofline",
        arms=arms(k7={"speculative_config": EAGLE | {"num_speculative_tokens": 7}, "acceptance": IID | {"rate": 0.6}}),
    )
    found = explain(loaded, Asked(contexts=(300, 4000)))
    assert arm(found, "plain").break_even == ()
    plain, fast = (set_up(loaded.scenario, name, Path()) for name in ("plain", "k7"))
    for answer, context in zip(arm(found, "k7").break_even, (300, 4000), strict=True):
        curve = analytic_curve(fast, plain, context)
        document = analytic_document(curve)
        assert {key: document[key] for key in answer.document} == answer.document
        assert {"status", "crossings", "capacity_reached_first", "max_batch"} <= set(answer.document)
        assert answer.batch_1 == (curve.speedup[0], curve.band_low[0], curve.band_high[0])
        for ranges, edge in (
            (answer.pays, curve.speedup),
            (answer.pays_if_slower, curve.band_low),
            (answer.pays_if_faster, curve.band_high),
        ):
            inside = [any(low <= b <= high for low, high in ranges) for b in curve.batch.tolist()]
            assert inside == (edge > 1).tolist()


@pytest.mark.parametrize(("draft_ms", "status", "pays"), [(1, "always", 1), (100, "never", 0)])
def test_statuses_without_a_crossing(small: Load, draft_ms: float, status: str, pays: int) -> None:
    found = explain(small(cost_model={"kind": "constant", "target_ms": 10, "draft_ms": draft_ms}), Asked())
    (answer,) = arm(found, "k3").break_even
    assert answer.document["status"] == status
    assert len(answer.pays) == len(answer.pays_if_slower) == len(answer.pays_if_faster) == pays


def test_arms_without_a_closed_form_say_why(small: Load) -> None:
    ngram = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}, "acceptance": IID}
    found = explain(small(arms=arms(ngram=ngram)), Asked())
    (answer,) = arm(found, "ngram").break_even
    assert "depends on the text" in answer.reason
    assert (answer.batch_1, answer.pays, arm(found, "ngram").drafter) == (None, (), None)
    classes = [{"name": "a", "share": 1, "speculate": False}, {"name": "b", "share": 1}]
    workload = {"arrivals": {"kind": "closed", "max_concurrency": 2}, "classes": classes}
    (answer,) = arm(explain(small(workload=workload), Asked()), "k3").break_even
    assert answer.reason == "a traffic class does not speculate"


def test_context_is_the_one_that_a_run_measures(small: Load) -> None:
    loaded = small()
    record = simulate(loaded.scenario, "plain", 0, Path())
    measured = mean_decode_context(measure_run(record, Measure(Loop(2))))
    demand = demand_of(loaded.scenario, Path(), 8192)
    assert demand.decode_context_tokens == round(measured)
    assert demand.mean_prompt_tokens == pytest.approx(60, rel=0.02)
    assert explain(loaded, Asked()).tables[0].rows[0].context_tokens == round(measured)


@pytest.mark.parametrize(
    ("engine", "chunks"), [({}, 1), ({"max_num_batched_tokens": 256}, 4), ({"long_prefill_token_threshold": 100}, 10)]
)
@pytest.mark.parametrize("name", ["plain", "k3"])
def test_prefill_is_the_ttft_of_a_lone_request(small: Load, name: str, engine: dict[str, int], chunks: int) -> None:
    workload = {
        "arrivals": {"kind": "closed", "max_concurrency": 1},
        "prompt_tokens": {"kind": "fixed", "value": 1000},
        "output_tokens": {"kind": "fixed", "value": 4},
        "num_requests": 1,
    }
    loaded = small(cost_model="roofline", workload=workload, engine={"max_num_seqs": 8, **engine}, sweep={})
    record = simulate(loaded.scenario, name, 0, Path())
    ttft_ms = (record.requests.first_token_ns[0] - record.requests.arrival_ns[0]) / 1e6
    fill = prefill_of(set_up(loaded.scenario, name, Path()), 1000)
    assert fill.total_ms == pytest.approx(ttft_ms, abs=1e-5)
    assert fill.chunks == chunks
    assert (fill.draft_ms > 0) == (name == "k3")


def test_ridge_and_kv_against_the_datasheet(small: Load) -> None:
    setup = set_up(small(cost_model="naive").scenario, "plain", Path())
    gpu, target, cost = setup.deployment.gpu, setup.deployment.target, setup.cost.target
    shapes = target.linear_shapes()
    weights = sum(s.layers * s.n_out * s.k_in for s in shapes)
    inputs_outputs = sum(s.layers * (s.n_out + s.k_in) for s in shapes)
    # 2 M W / F = (2 W + 2 M io) / BW
    ridge = weights / (weights * gpu.memory_bandwidth / gpu.bf16 - inputs_outputs)
    assert ridge_tokens(cost) == int(np.ceil(ridge))
    at = kv_equals_weights(cost, 8)
    memory_s = (2 * weights + 16 * inputs_outputs) / gpu.memory_bandwidth
    expected = memory_s * gpu.memory_bandwidth / (8 * target.kv_bytes_per_token())
    assert at.context_tokens == pytest.approx(expected, abs=2)


def test_ridge_in_tokens_does_not_move_with_the_batch_of_a_dense_model(small: Load) -> None:
    cost = set_up(small(cost_model="roofline").scenario, "plain", Path()).cost.target
    found = [kv_equals_weights(cost, batch).context_tokens or 0 for batch in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)
    ridge = ridge_tokens(cost)
    assert ridge is not None
    assert 150 < ridge < 600


def test_defaults_follow_the_sweep(small: Load) -> None:
    assert {r.batch for r in explain(small(), Asked()).tables[0].rows} == {1, 2, 4}
    varied = {"vary": {"engine.max_num_batched_tokens": [1024, 2048]}}
    found = explain(small(sweep=varied, engine={"max_num_seqs": 128}), Asked())
    assert {r.batch for r in found.tables[0].rows} == {1, 2, 4, 8, 16, 32, 64, 128, 256}
    assert found.varied == ("engine.max_num_batched_tokens",)


def test_overheads_are_those_in_use(small: Load) -> None:
    cost = {
        "kind": "roofline",
        "host": {"base_ms": 1, "per_request_ms": 0.1},
        "draft_launch_ms": 0.2,
        "per_draft_token_us": 4,
    }
    found = explain(small(cost_model=cost, engine={"async_scheduling": True}), Asked()).cost
    assert (found.host_base_ms, found.host_per_request_ms, found.host_overlapped) == (1.0, 0.1, True)
    assert (found.draft_launch_ms, found.draft_token_us) == (pytest.approx(0.2), pytest.approx(4))
    assert (found.profile, found.trust, found.relative_error) == ("h100-sxm/bf16", "calibrated", 0.08)
    assert "tokens" in found.covers


def test_a_factor_on_verifying_is_not_taken_for_the_cost_of_a_draft_token(small: Load) -> None:
    cost = {"kind": "roofline", "per_draft_token_us": 4}
    found = explain(small(cost_model=cost, what_if={"verify_time": 1.5}), Asked()).cost
    assert found.draft_token_us == pytest.approx(6)


def test_batch_expansion_is_not_taken_off_the_cost_of_a_draft_token(small: Load) -> None:
    """112 us, the profile's: whether the attention of drafts is expanded is not part of it."""
    cost = {"kind": "roofline", "engine": "vllm-0.6"}
    found = explain(small(cost_model=cost, engine={"enable_mixed_chunk": False}), Asked()).cost
    assert found.draft_token_us == pytest.approx(112)


def test_shares_are_left_out_where_drafts_depend_on_the_text(small: Load) -> None:
    """A look-up drafts less than K at most steps: accepted over K is no acceptance rate."""
    config = {"method": "ngram", "num_speculative_tokens": 5}
    arms = {
        "plain": {},
        "n": {"speculative_config": config, "acceptance": {"kind": "ngram_markov", "profile": "gsm8k"}},
    }
    found = explain(small(arms=arms), Asked())
    (said,) = found.arms[1].acceptance
    assert (said.acceptance_rate, said.alpha) == (None, None)
    assert "of drafts accepted" not in explanation_text(found)


def test_badges() -> None:
    assert [trust(e) for e in (0.0, 0.08, 0.15, 0.25)] == ["exact", "calibrated", "same generation", "uncertain"]


def test_a_speculative_baseline_is_compared_with_and_k_0_stays_plain(small: Load) -> None:
    two = {
        "k1": {"speculative_config": EAGLE | {"num_speculative_tokens": 1}, "acceptance": IID},
        "k3": {"speculative_config": EAGLE, "acceptance": IID},
    }
    found = explain(small(arms=two, baseline="k1"), Asked(batches=(1,)))
    assert (row(found, 1, 0).total_ms, row(found, 1, 0).draft_ms) == (10.0, 0.0)
    (answer,) = arm(found, "k3").break_even
    assert answer.batch_1 is not None
    assert answer.batch_1[0] == pytest.approx((2.533 / 13) / (1.7 / 11), rel=1e-12)


def test_what_cannot_be_is_named(small: Load) -> None:
    with pytest.raises(ScenarioError, match=r"context 9000: allowed: below engine.max_model_len = 2048"):
        explain(small(engine={"max_model_len": 2048}), Asked(contexts=(100, 9000)))
    many = tuple(range(1, 65))
    with pytest.raises(ScenarioError, match=r"262144 batches x K x contexts; allowed: at most 10000"):
        explain(small(), Asked(batches=many, ks=many, contexts=many))
    with pytest.raises(CapacityError, match=r"^arms\.plain: Llama-3\.1-70B on 1 x RTX-4090"):
        explain(small(model="llama-3.1-70b", hardware="rtx-4090"), Asked())


@pytest.mark.parametrize("name", [name for name in shipped_names() if "/" not in name] + ["methods/dflash"])
def test_shipped_scenarios_can_be_explained(name: str) -> None:
    found = explain(load_scenario(name), Asked(batches=(1, 64)))
    numbers = [value for table in found.tables for r in table.rows for value in asdict(r).values()]
    assert all(np.isfinite(value) for value in numbers if isinstance(value, float))
    assert all(fill.total_ms > 0 for fill in (each.prefill for each in found.arms))


def test_memory_of_the_host_is_told(small: Load) -> None:
    rest = {"speculative_config": {"method": "rest", "num_speculative_tokens": 3}, "acceptance": IID}
    found = explain(small(arms=arms(rest=rest)), Asked())
    assert (arm(found, "rest").host_memory_bytes, arm(found, "plain").host_memory_bytes) == (12e9, 0.0)
