"""K by batch size against exhaustive search written down again; the simulated check on cases with a known answer."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cost.passes import verify_pass
from sim.errors import ScenarioError
from sim.experiment.executor import local_executor
from sim.experiment.k_check import Judge
from sim.experiment.k_regret import simulated_document, verdict_of
from sim.experiment.results import load, read_document
from sim.experiment.rounds import Work
from sim.experiment.tune_k import Wish, tune_k
from sim.scenario.build import set_up
from sim.scenario.load import LoadedScenario, load_mapping
from sim.speculation.base import DraftWork

Load = Callable[..., LoadedScenario]
MOST = 6
JUDGE = Judge("output_throughput", 2, 0.01, 0.95)


def wish(**changes: Any) -> Wish:
    return Wish(**{"arm": None, "ks": tuple(range(MOST + 1)), "judge": JUDGE, "min_range": 1} | changes)


def random_scenario(case: int) -> dict[str, Any]:
    """Random prices (constant, linear, roofline dense and with experts, padded to graphs) and acceptance."""
    rng = np.random.default_rng(case)
    kind = ("constant", "linear", "roofline", "padded", "experts")[case % 5]
    host = {"base_ms": float(rng.uniform(0, 2)), "per_request_ms": float(rng.uniform(0, 0.05))}
    if kind == "constant":
        cost: dict[str, Any] = {
            "kind": "constant",
            "target_ms": 10,
            "draft_ms": float(rng.uniform(0.1, 8)),
            "host": host,
        }
    elif kind == "linear":
        slope, draft = float(rng.uniform(1, 300)), float(rng.uniform(0.1, 2))
        line = {"base_ms": draft, "per_token_us": float(rng.uniform(0, 20))}
        cost = {"kind": "linear", "base_ms": 8, "per_token_us": slope, "draft": line, "host": host}
    else:
        cost = {"kind": "roofline", "graphs": "pad" if kind == "padded" else "none"}
    rates = np.cumprod(rng.uniform(0.2, 0.95, MOST)).tolist()
    iid = {"kind": "iid", "rate": float(rng.uniform(0.1, 0.95))}
    return {
        "hardware": str(rng.choice(["h100-sxm", "a100-sxm-80gb"])),
        "model": "qwen3-30b-a3b" if kind == "experts" else "llama-3.1-8b",
        "cost_model": cost,
        "engine": {"max_num_seqs": int(rng.integers(6, 40)), "max_model_len": 4096, "async_scheduling": False},
        "arms": {
            "plain": {},
            "fast": {
                "speculative_config": {"method": "eagle3", "num_speculative_tokens": MOST},
                "acceptance": iid if case % 2 else {"kind": "per_position", "rates": rates},
            },
        },
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": 2},
            "prompt_tokens": {"kind": "fixed", "value": int(rng.integers(50, 3000))},
            "output_tokens": {"kind": "fixed", "value": 101},
        },
    }


def tokens_per_step(acceptance: dict[str, Any], k: int) -> float:
    if acceptance["kind"] == "iid":
        return float(sum(acceptance["rate"] ** i for i in range(k + 1)))
    return 1.0 + sum(acceptance["rates"][:k])


def step_seconds(scenario: dict[str, Any], most: int, context: int) -> Callable[[int, int], float]:
    """Seconds of a decode step by batch and K: on paper for constant and linear costs, else from the bound prices."""
    cost = scenario["cost_model"]
    if cost["kind"] != "roofline":
        host, line = cost["host"], cost.get("draft", {})
        target_ms = cost.get("target_ms", cost.get("base_ms"))
        draft_ms = cost.get("draft_ms", line.get("base_ms"))
        token_us, draft_us = cost.get("per_token_us", 0.0), line.get("per_token_us", 0.0)

        def on_paper(batch: int, k: int) -> float:
            first = draft_ms + draft_us * 1e-3 * batch * (1 + k)
            others = max(0, k - 1) * (draft_ms + draft_us * 1e-3 * batch)
            target = target_ms + token_us * 1e-3 * batch * (1 + k)
            return 1e-3 * float(target + first + others + host["base_ms"] + host["per_request_ms"] * batch)

        return on_paper
    arms = {
        "fast": scenario["arms"]["fast"] | {"speculative_config": {"method": "eagle3", "num_speculative_tokens": most}}
    }
    setup = set_up(load_mapping(scenario | {"arms": {"plain": {}} | arms}).scenario, "fast", Path())

    def priced(batch: int, k: int) -> float:
        forward = verify_pass(batch, context, k)
        draft = setup.drafter.draft_seconds(DraftWork(forward, batch, batch * context, k))
        return setup.cost.target.price(forward).seconds + draft + setup.cost.host.seconds(batch)

    return priced


def exhaustive(scenario: dict[str, Any], tie: float, context: int) -> list[int]:
    """K of batches 1, 2, ...: every K tried; when the largest is not used, bound again without it."""
    most = MOST
    while True:
        seconds = step_seconds(scenario, most, context)
        best = []
        for batch in range(1, scenario["engine"]["max_num_seqs"] + 1):
            rate = [
                tokens_per_step(scenario["arms"]["fast"]["acceptance"], k) / seconds(batch, k) for k in range(most + 1)
            ]
            best.append(next(k for k in range(most + 1) if rate[k] >= (1 - tie) * max(rate)))
        if max(best) in (0, most):
            return best
        most = max(best)


@pytest.mark.parametrize("case", range(50))
def test_equals_exhaustive_search(case: int) -> None:
    scenario, tie = random_scenario(case), (0.0, 0.01)[case % 3 == 0]
    judge = Judge("output_throughput", 2, tie, 0.95)
    document = tune_k(load_mapping(scenario), wish(judge=judge), None).document
    assert document["context_tokens"] == scenario["workload"]["prompt_tokens"]["value"] + 50
    found = [k for first, last, k in document["ranges"] for _ in range(first, last + 1)]
    assert found == exhaustive(scenario, tie, document["context_tokens"])


def test_random_scenarios_cover_what_matters() -> None:
    tables = [tune_k(load_mapping(random_scenario(case)), wish(), None).document["ranges"] for case in range(50)]
    ks = [[k for *_, k in ranges] for ranges in tables]
    assert {k for table in ks for k in table} == set(range(MOST + 1))
    assert any(table != sorted(table, reverse=True) for table in ks), "none with K rising with the batch"


ARM = {
    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
    "acceptance": {"kind": "iid", "rate": 0.8},
}
TRAFFIC = {
    "arrivals": {"kind": "closed", "max_concurrency": 2},
    "prompt_tokens": {"kind": "fixed", "value": 20},
    "output_tokens": {"kind": "fixed", "value": 40},
    "num_requests": 30,
}


def tuned(make: Load, folder: Path, cost: dict[str, Any], **changes: Any) -> Any:
    engine = {"max_num_seqs": 16, "async_scheduling": False}
    sections = {"cost_model": cost, "arms": {"plain": {}, "fast": ARM}, "workload": TRAFFIC, "engine": engine}
    loaded = make(**sections | changes.pop("sections", {}))
    return tune_k(
        loaded,
        wish(**{"ks": (0, 1, 2, 3, 4), "loads": (1, 4)} | changes),
        Work(folder, partial(local_executor, 1), None),
    )


def test_a_table_that_holds_is_kept(small: Load, tmp_path: Path) -> None:
    found = tuned(small, tmp_path, {"kind": "constant", "target_ms": 10, "draft_ms": 1})
    document = read_document(found.run_dir / "k_schedule.json")
    assert document == found.document
    assert document["ranges"] == document["closed_form"]["ranges"] == [[1, 16, 4]]
    assert document["simulated_best"] == [[1, 4], [4, 4]]
    assert document["verdict"] == "use_the_table"
    everywhere = document["simulated"]["over_all"]
    assert 0.0 < everywhere["table"]["regret"]["estimate"] < everywhere["k3"]["regret"]["estimate"]
    assert everywhere["k4"]["over_table"]["estimate"] == 1.0
    assert everywhere["k3"]["over_table"]["estimate"] < 1.0
    assert load(found.run_dir).manifest["arms"] == ["plain", "k3", "k4", "table", "oracle"]


def test_simulations_correct_a_closed_form_that_knows_no_end_of_outputs(small: Load, tmp_path: Path) -> None:
    """Outputs of three tokens leave nothing for a third and fourth draft, which the closed form cannot know."""
    short = TRAFFIC | {"output_tokens": {"kind": "fixed", "value": 3}}
    cost = {"kind": "constant", "target_ms": 10, "draft_ms": 1}
    judge = Judge("output_throughput", 4, 0.01, 0.95)
    found = tuned(small, tmp_path, cost, sections={"workload": short}, judge=judge).document
    assert found["closed_form"]["ranges"] == [[1, 16, 4]]
    assert found["simulated_best"] == [[1, 1], [4, 0]]
    assert found["ranges"] == [[1, 2, 1], [3, 16, 0]]
    assert found["speculative_config"]["num_speculative_tokens"] == 1
    simulated = found["simulated"]["over_all"]
    fixed = [simulated[arm]["over_table"]["estimate"] for arm in ("k0", "k1", "k3", "k4")]
    assert max(fixed) < 1.0, "better than every fixed K"


def test_a_drafter_that_costs_more_than_it_saves_is_not_to_be_loaded(small: Load, tmp_path: Path) -> None:
    found = tuned(small, tmp_path, {"kind": "constant", "target_ms": 10, "draft_ms": 20}).document
    # a step of 10 ms without and 30 ms with the drafter's first pass, which K = 0 pays as well: so K = 1
    assert found["ranges"] == [[1, 16, 1]]
    assert found["closed_form"]["speedup"][0]["speedup"] == pytest.approx(1.8 / 3)
    assert found["closed_form"]["k0_cost"]["most"] == pytest.approx(2 / 3)
    assert found["verdict"] == "do_not_load_a_drafter"


def test_no_drafts_at_all_leaves_nothing_to_paste(small: Load, tmp_path: Path) -> None:
    slow = {"kind": "linear", "base_ms": 0.1, "per_token_us": 5000, "draft": {"base_ms": 0.1}}
    found = tuned(small, tmp_path, slow).document
    assert found["ranges"] == [[1, 16, 0]]
    assert found["verdict"] == "do_not_load_a_drafter"
    assert found["speculative_config"] is None
    assert [found["emit"][engine]["text"] for engine in ("vllm", "sglang", "trtllm")] == ["", "", ""]


def test_regret_is_what_is_lost_against_the_oracle() -> None:
    speeds = {("a", "plain"): 10, ("a", "k1"): 20, ("a", "k2"): 16, ("a", "table"): 20, ("a", "oracle"): 25,
              ("b", "plain"): 10, ("b", "k1"): 8, ("b", "k2"): 9, ("b", "table"): 9, ("b", "oracle"): 9}  # fmt: skip
    rows = [
        {
            "cell_id": cell,
            "arm": arm,
            "replicate": r,
            "max_concurrency": {"a": 1, "b": 8}[cell],
            "output_throughput": v + r,
        }
        for (cell, arm), v in speeds.items()
        for r in (0,)
    ]
    found = simulated_document(rows, JUDGE)
    assert found["over_all"]["table"]["regret"]["estimate"] == pytest.approx(1 - (20 / 25) ** 0.5)
    assert found["over_all"]["k2"]["regret"]["estimate"] == pytest.approx(1 - (16 / 25) ** 0.5)
    assert found["over_all"]["oracle"]["regret"] is None
    assert found["over_all"]["k1"]["over_table"]["estimate"] == pytest.approx((8 / 9) ** 0.5)
    assert [row["concurrency"] for row in found["loads"]] == [1, 8]


def test_verdicts() -> None:
    def at(low: float, high: float) -> dict[str, Any]:
        return {"arms": {"table": {"speedup": {"estimate": (low + high) / 2, "ci_low": low, "ci_high": high}}}}

    assert verdict_of([], [at(0.8, 0.9), at(1.1, 1.2)], 0.01) == "use_the_table"
    assert verdict_of([], [at(0.8, 0.9), at(0.9, 1.005)], 0.01) == "do_not_load_a_drafter"
    assert verdict_of([], [at(0.9, 1.2)], 0.01) == "not_resolved"
    assert verdict_of([0.9, 1.2], [], 0.01) == "use_the_table"
    assert verdict_of([0.9, 1.005], [], 0.01) == "do_not_load_a_drafter"


def test_what_cannot_be_tuned_says_why(small: Load) -> None:
    ngram = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}, "acceptance": ARM["acceptance"]}
    other = ARM | {"acceptance": {"kind": "iid", "rate": 0.5}}
    ask: Callable[..., Any] = partial(
        lambda arms, **changes: tune_k(small(arms={"plain": {}} | arms), wish(**changes), None)
    )
    for arms, changes, message in (
        ({"ngram": ngram}, {}, "depends on the text"),
        ({}, {}, "no arm speculates"),
        ({"a": ARM, "b": other}, {}, "choose one with --arm: a, b"),
        ({"a": ARM}, {"arm": "c"}, "no such arm: c; there are plain, a"),
        ({"a": ARM}, {"loads": (1, 100_000)}, "requests fit at the mean context"),
    ):
        with pytest.raises(ScenarioError, match=message):
            ask(arms, **changes)


def test_k_beyond_the_stated_acceptance_is_left_out_and_said(small: Load) -> None:
    arm = ARM | {"acceptance": {"kind": "per_position", "rates": [0.8, 0.6, 0.5]}}
    document = tune_k(small(arms={"plain": {}, "a": arm}), wish(), None).document
    assert document["ks"] == [0, 1, 2, 3]
    assert document["notes"] == ["K above 3: the acceptance says nothing about it"]


def test_contexts_with_the_same_table_are_one(small: Load) -> None:
    document = tune_k(small(), wish(by_context=True), None).document
    (row,) = document["by_context"]  # constant costs do not know the context
    assert row["first_context"] == 1
    assert len(row["contexts"]) == 5
    loaded = small(cost_model={"kind": "roofline"}, engine={"max_num_seqs": 200, "max_model_len": 8192})
    rows = tune_k(loaded, wish(by_context=True), None).document["by_context"]
    assert all(a["first_context"] < b["first_context"] for a, b in itertools.pairwise(rows))
    assert all(a["contexts"][-1] < b["first_context"] <= b["contexts"][0] for a, b in itertools.pairwise(rows))
