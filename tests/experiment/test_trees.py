"""Token trees from the scenario to the answers: what is verified, what is accepted, and the best size by batch."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sim.experiment.analytic import analytic_curve, largest_scheduled, tokens_per_step
from sim.experiment.explain import Asked, explain
from sim.metrics.summary import Measure, measure_run, summary_row
from sim.metrics.window import Loop
from sim.report.explain import explanation_text
from sim.report.explain_steps import best_size
from sim.scenario.build import set_up, simulate
from sim.scenario.lint import lint
from sim.scenario.load import LoadedScenario, load_scenario

Load = Callable[..., LoadedScenario]
ROOT = Path(__file__).resolve().parents[2]
BY_RANK = {"kind": "per_rank", "rates": [0.7, 0.12, 0.05, 0.03]}
DYNAMIC = {"method": "eagle3", "num_speculative_tokens": 20, "tree": {"kind": "dynamic", "depth": 5, "top_k": 4}}
OPTIMAL = {
    "method": "eagle3",
    "num_speculative_tokens": 40,
    "tree": {"kind": "optimal", "rates": [0.7, 0.12, 0.05, 0.03], "depth": 8},
}
MEDUSA = {"method": "medusa", "num_speculative_tokens": 63, "tree": {"kind": "named", "name": "medusa_7b_63"}}


def arms(config, acceptance=None, **classes):
    return {"plain": {}, "tree": {"speculative_config": config, "acceptance": acceptance or BY_RANK, **classes}}


LONG = {
    "arrivals": {"kind": "closed", "max_concurrency": 16},
    "prompt_tokens": {"kind": "fixed", "value": 20},
    "output_tokens": {"kind": "fixed", "value": 400},
    "num_requests": 64,
}


@pytest.mark.parametrize("config", [DYNAMIC, OPTIMAL, MEDUSA], ids=["dynamic", "optimal", "medusa"])
def test_a_run_emits_the_path_products(small: Load, config) -> None:
    """Tokens per step within 3 standard errors over requests; the engine verifies K and accepts at most the depth."""
    scenario = small(arms=arms(config), workload=LONG).scenario
    setup = set_up(scenario, "tree", Path())
    record = simulate(scenario, "tree", 0, Path())
    chosen = record.drafted > 0
    accepted, k = record.accepted[chosen].astype(float), setup.arm.speculative_config.max_draft_tokens
    assert set(record.drafted[chosen]) == {k}
    assert record.accepted.max() <= setup.arm.speculative_config.max_accepted_tokens == record.tree_depth
    error = accepted.std() / np.sqrt(len(accepted))
    assert 1 + accepted.mean() == pytest.approx(tokens_per_step(setup, 16), abs=3 * error)


def test_counters_of_a_tree_end_at_its_depth(small: Load) -> None:
    scenario = small(arms=arms(MEDUSA), workload=LONG).scenario
    run = measure_run(simulate(scenario, "tree", 0, Path()), Measure(Loop(16)))
    counts, row = run.speculation, summary_row(run)
    assert len(counts.histogram) == 5
    assert len(counts.accepted_per_pos) == len(counts.drafted_per_pos) == len(counts.reached_per_pos) == 4
    assert int(np.arange(5) @ counts.histogram) == counts.num_accepted_tokens
    assert counts.num_draft_tokens == 63 * counts.num_drafts
    assert counts.conditional_rates[0] == pytest.approx(0.9, abs=0.01)
    assert row["spec_decode_acceptance_rate"] == pytest.approx(
        100 * counts.num_accepted_tokens / counts.num_draft_tokens
    )


def test_a_tree_cut_by_the_token_budget_keeps_its_first_nodes(small: Load) -> None:
    """A budget of 80 for 4 requests of 21 tokens: three whole trees, and 17 tokens for the youngest request."""
    engine = {"max_num_batched_tokens": 80, "max_num_seqs": 4, "max_model_len": 1000}
    workload = LONG | {"arrivals": {"kind": "closed", "max_concurrency": 4}, "num_requests": 8}
    record = simulate(small(arms=arms(DYNAMIC), workload=workload, engine=engine).scenario, "tree", 0, Path())
    cut = (record.drafted > 0) & (record.drafted < 20)
    assert set(record.drafted[cut]) == {16}  # 80 - 3 x 21 = 17 tokens, the root among them
    assert 0 < record.accepted[cut].mean() < record.accepted[record.drafted == 20].mean()


def test_classes_may_accept_otherwise(small: Load) -> None:
    classes = [{"name": "a", "share": 1}, {"name": "b", "share": 1}]
    other = {"class_acceptance": {"b": {"kind": "length", "tokens_per_step": 1.5, "num_speculative_tokens": 5}}}
    scenario = small(arms=arms(DYNAMIC, **other), workload=LONG | {"classes": classes}).scenario
    record = simulate(scenario, "tree", 0, Path())
    kind = np.repeat(record.requests.class_id, record.requests.output_tokens)
    a, b = (1 + record.accepted[(record.drafted > 0) & (kind == each)].mean() for each in (0, 1))
    assert b == pytest.approx(1.5, abs=0.05)
    assert a > 3


def best_by_batch(loaded: LoadedScenario, batches: tuple[int, ...]) -> list[int]:
    (table,) = explain(loaded, Asked(batches=batches, contexts=(500,))).tables
    return [best_size([row for row in table.rows if row.batch == batch and row.speedup]) for batch in batches]


@pytest.mark.parametrize("config", [DYNAMIC, OPTIMAL], ids=["dynamic", "optimal"])
def test_the_best_tree_shrinks_with_the_batch(small: Load, config) -> None:
    """Dense model: non-increasing; large trees in an empty server, none where the GPU is compute-bound."""
    engine = {"max_num_batched_tokens": 16384, "max_model_len": 2048, "num_gpu_blocks_override": 10**6}
    loaded = small(arms=arms(config), cost_model={"kind": "naive"}, engine=engine)
    sizes = best_by_batch(loaded, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
    assert all(a >= b for a, b in pairwise(sizes))
    assert sizes[0] == config["num_speculative_tokens"]
    assert sizes[-1] <= 2


def test_explain_shows_the_best_tree(small: Load) -> None:
    text = explanation_text(explain(small(arms=arms(OPTIMAL), cost_model={"kind": "roofline"}), Asked(batches=(1, 64))))
    assert "Best tree of the first K nodes by batch, eagle3 (tree)" in text
    assert "K=40: tok/step" in text
    assert "tree: {kind: optimal, rates: [0.7, 0.12, 0.05, 0.03], depth: 8}" in " ".join(text.split())


def test_explain_and_check_say_what_the_whole_tree_accepts(small: Load) -> None:
    """The seven largest path products by hand; accepted over drafted as a run reports it, and no alpha."""
    config = {"method": "eagle3", "num_speculative_tokens": 7, "tree": OPTIMAL["tree"]}
    loaded = small(arms=arms(config), workload=LONG)
    tokens = 1 + sum(0.7**depth for depth in range(1, 7)) + 0.12
    (said,) = next(arm for arm in explain(loaded, Asked(batches=(1,))).arms if arm.name == "tree").acceptance
    assert said.tokens_per_step == pytest.approx(tokens)
    assert said.acceptance_rate == pytest.approx((tokens - 1) / 7)
    assert said.alpha is None
    run = measure_run(simulate(loaded.scenario, "tree", 0, Path()), Measure(Loop(16)))
    assert run.speculation.acceptance_rate == pytest.approx(said.acceptance_rate, abs=0.01)
    line = lint(loaded).summary[-1]
    assert f"{tokens:.2f} tokens per step with the bonus, {(tokens - 1) / 7:.0%} of drafts accepted at K=7" in line


def test_the_closed_form_ends_where_the_token_budget_does(small: Load) -> None:
    engine = {"max_num_batched_tokens": 512, "max_num_seqs": 64, "max_model_len": 1000}
    loaded = small(arms=arms(DYNAMIC), engine=engine)
    plain, tree = (set_up(loaded.scenario, arm, Path()) for arm in ("plain", "tree"))
    assert (largest_scheduled(plain), largest_scheduled(tree)) == (64, 512 // 21)
    curve = analytic_curve(tree, plain, 100)
    assert curve.batch[-1] == 512 // 21
    assert not curve.kv_limited


def test_measured_means_have_no_other_size(small: Load) -> None:
    acceptance = {"kind": "length", "tokens_per_step": 2.9, "num_speculative_tokens": 5}
    (table,) = explain(small(arms=arms(DYNAMIC, acceptance)), Asked(batches=(1,))).tables
    known = {row.num_draft_tokens: row.tokens_per_step for row in table.rows if row.tokens_per_step is not None}
    assert known == {0: 1.0, 20: pytest.approx(2.9)}


@pytest.mark.parametrize("name", ["medusa", "eagle-tree"])
def test_shipped_scenarios_of_trees_run(name: str) -> None:
    """One small cell of each arm; K counts nodes, tokens per step stay within the depth."""
    loaded = load_scenario(str(ROOT / "scenarios" / "methods" / f"{name}.yaml"), ("workload.num_requests=12",))
    found = explain(loaded, Asked(batches=(1, 16)))
    assert any(table.tree for table in found.tables)
    for arm in loaded.scenario.arms:
        record = simulate(loaded.scenario, arm, 0, loaded.base_dir)
        assert (record.requests.emitted_tokens == record.requests.output_tokens).all()
        assert replace(record).accepted.max() <= loaded.scenario.arms[arm].speculative_config.max_accepted_tokens
