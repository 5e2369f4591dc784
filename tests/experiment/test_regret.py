"""Regret: who is compared with whom, the arithmetic, the file, and that the oracle is hard to beat."""

from pathlib import Path

import numpy as np
import pytest

from sim.experiment.compare import runs_by_arm
from sim.experiment.regret import contests, regret_rows
from sim.experiment.results import load
from sim.experiment.run import run
from sim.metrics.statistics import paired_ratio
from sim.report.dashboard import page_html
from sim.report.reader import load_results
from sim.report.terminal import summary_text
from sim.scenario.build import simulate
from sim.scenario.dump import plain_data
from sim.scenario.load import load_mapping

EAGLE = {"method": "eagle3", "num_speculative_tokens": 3}
IID = {"kind": "iid", "rate": 0.7}


def arm(kind: str | None = None, k: int = 3, **more) -> dict:
    rule = {"draft_length": {"kind": kind}} if kind else {}
    return {"speculative_config": EAGLE | {"num_speculative_tokens": k}, "acceptance": IID} | rule | more


def test_contests_are_among_arms_that_differ_in_k_alone(small) -> None:
    arms = {
        "plain": {}, "ema": arm("ema"), "oracle": arm("oracle"), "k1": arm(k=1), "k3": arm(),
        "other": arm(acceptance=IID | {"rate": 0.5}), "lonely": arm("ema", acceptance=IID | {"rate": 0.4}),
    }  # fmt: skip
    first, lonely = contests(small(arms=arms).scenario.arms)
    assert (first.rules, first.fixed, first.oracle) == (("ema",), ("plain", "k1", "k3"), "oracle")
    assert first.judged == ("ema", "plain", "k1", "k3", "oracle")
    assert (lonely.rules, lonely.fixed, lonely.judged) == (("lonely",), ("plain",), ("lonely",))
    assert contests(small(arms={"plain": {}, "k3": arm()}).scenario.arms) == []


def test_regret_is_the_share_of_the_reference_that_is_lost(small) -> None:
    scenario = small(
        arms={"plain": {}, "ema": arm("ema"), "oracle": arm("oracle"), "k1": arm(k=1), "k3": arm()}
    ).scenario
    values = {"plain": (50, 60), "ema": (90, 99), "oracle": (100, 110), "k1": (95, 90), "k3": (80, 100)}
    rows = [
        {"cell_id": "c", "arm": name, "replicate": rep, "output_throughput": float(value), "mean_tpot_ms": 1e3 / value,
         "k_mean": 1.0 + rep, "k_switches": 4, "max_concurrency": 4, "saturated": False}
        for name, pair in values.items() for rep, value in enumerate(pair)
    ]  # fmt: skip
    found = regret_rows(runs_by_arm(rows), [("c", {"x": 1})], scenario.arms, 0.9)
    by_key = {(row["arm"], row["metric"], row["against"]): row for row in found}
    line = by_key["ema", "output_throughput", "oracle"]
    ratio = paired_ratio([90, 99], [100, 110], 0.9)
    assert line["regret"] == pytest.approx(1 - ratio.estimate) == pytest.approx(0.1)
    assert (line["ci_low"], line["ci_high"]) == (pytest.approx(1 - ratio.high), pytest.approx(1 - ratio.low))
    assert (line["rule"], line["k_mean"], line["k_switches"], line["vary.x"]) == ("ema", 1.5, 4, 1)
    assert by_key["ema", "output_throughput", "best_fixed"]["reference"] == "k1"  # 92.5 against 90 and 55
    assert by_key["ema", "mean_tpot_ms", "best_fixed"]["reference"] == "k1"
    assert by_key["ema", "mean_tpot_ms", "oracle"]["regret"] == pytest.approx(line["regret"])
    assert by_key["oracle", "output_throughput", "best_fixed"]["regret"] < 0
    assert ("k1", "output_throughput", "best_fixed") not in by_key
    assert {row["arm"] for row in found} == set(values)


def test_an_offered_load_is_nobodys_to_lose(small) -> None:
    scenario = small(arms={"plain": {}, "ema": arm("ema"), "k3": arm()}).scenario
    rows = [
        {"cell_id": "c", "arm": name, "replicate": 0, "output_throughput": 9.0, "mean_tpot_ms": 3.0, "k_mean": 0.0,
         "k_switches": 0, "max_concurrency": None, "saturated": False}
        for name in scenario.arms
    ]  # fmt: skip
    assert {row["metric"] for row in regret_rows(runs_by_arm(rows), [("c", {})], scenario.arms, 0.9)} == {
        "mean_tpot_ms"
    }


def test_references_are_made_once_and_only_when_asked(small) -> None:
    arms = {"plain": {}, "a": arm("ema"), "b": arm("goodput"), "mine": arm(k=2)}
    assert list(small(arms=arms).scenario.arms) == ["plain", "a", "b", "mine"]
    filled = small(arms=arms, sweep={"regret": True, "replicates": 1}).scenario
    assert list(filled.arms) == ["plain", "a", "b", "mine", "eagle3-oracle", "eagle3-k1", "eagle3-k3"]
    assert filled.arms["eagle3-oracle"].k_rule.kind == "oracle"
    assert filled.arms["eagle3-k1"].speculative_config.max_draft_tokens == 1
    assert filled.arms["eagle3-k1"].acceptance == filled.arms["a"].acceptance
    assert load_mapping(plain_data(filled)).scenario == filled


@pytest.mark.parametrize(
    ("tree", "k", "sizes"),
    [
        ({"kind": "dynamic", "depth": 3, "top_k": 2}, 5, [3, 4, 5]),
        ({"kind": "optimal", "rates": [0.6, 0.2], "depth": 2}, 3, [1, 2, 3]),
        ({"kind": "widths", "widths": [2, 1]}, 4, [4]),
    ],
)
def test_fixed_k_of_a_tree_are_sizes_that_it_can_have(small, tree, k: int, sizes: list[int]) -> None:
    config = {"method": "eagle3", "num_speculative_tokens": k, "tree": tree}
    one = {
        "speculative_config": config,
        "acceptance": {"kind": "per_rank", "rates": [0.6, 0.2]},
        "draft_length": {"kind": "draft_len_schedule", "draft_len_schedule": [[8, k]]},
    }
    filled = small(arms={"plain": {}, "a": one}, sweep={"regret": True, "replicates": 1}).scenario
    assert list(filled.arms) == ["plain", "a", "eagle3-oracle", *(f"eagle3-k{size}" for size in sizes)]


def test_references_are_made_of_measured_k_only(small) -> None:
    """Block drafters are measured at single K; arms in between would have no acceptance."""
    table = [[1, 8, 7], [9, 256, 3]]
    one = {
        "speculative_config": {
            "method": "dflash", "num_speculative_tokens": 7, "num_speculative_tokens_per_batch_size": table
        },
        "acceptance": {"kind": "table_by_k", "tokens_per_step": {7: 3.5, 3: 2.6}},
    }  # fmt: skip
    found = small(arms={"plain": {}, "a": one}, sweep={"regret": True, "replicates": 1})
    assert list(found.scenario.arms) == ["plain", "a", "dflash-k3", "dflash-k7"]
    (said,) = [one for one in found.notes if "sweep.regret" in one]
    assert "the acceptance of a says nothing of K = 1, 2, 4, 5, 6: neither they nor the oracle are references" in said


def test_names_that_are_taken_are_left_alone(small) -> None:
    arms = {"plain": {}, "a": arm("ema"), "eagle3-k1": arm(k=2, acceptance={"kind": "iid", "rate": 0.1})}
    filled = small(arms=arms, sweep={"regret": True, "replicates": 1}).scenario
    assert filled.arms["eagle3-k1"].speculative_config.max_draft_tokens == 2
    assert {"a-oracle", "a-k1", "a-k2", "a-k3"} <= set(filled.arms)


def test_file_terminal_and_python(small, tmp_path: Path) -> None:
    arms = {"plain": {}, "slow": arm("heuristic")}
    folder = run(small(arms=arms, sweep={"regret": True, "replicates": 2}), tmp_path, jobs=1)
    table = load(folder).regret()
    assert set(table["against"]) == {"oracle", "best_fixed"}
    assert set(table["arm"]) == {"plain", "slow", "eagle3-oracle", "eagle3-k1", "eagle3-k2", "eagle3-k3"}
    text = summary_text(folder)
    assert "Choosing K: regret, the share of output throughput lost" in text
    assert max(map(len, text.splitlines())) <= 100
    page = page_html(load_results(folder))
    assert "Choosing K at run time" in page
    assert "Against the oracle slow loses up to" in page
    assert "Drafts per request (K)" in page


def test_without_an_oracle_the_summary_says_how_to_get_one(small, tmp_path: Path) -> None:
    folder = run(small(arms={"plain": {}, "a": arm("ema"), "k1": arm(k=1)}), tmp_path, replicates=1, jobs=1)
    assert "no oracle among the arms: add one with draft_length: {kind: oracle}" in summary_text(folder)


CASES = {
    "alone": (1, "eagle3", IID),
    "batch 24, spread": (24, "eagle3", IID | {"request_spread": {"kind": "beta", "concentration": 4}}),
    "batch 100, draft model": (100, "draft_model", {"kind": "regime", "profile": "sharegpt"}),
}


@pytest.mark.parametrize("case", CASES)
def test_nobody_beats_the_oracle(case: str) -> None:
    """Time to serve a fixed set of requests, closed loop.

    The oracle is best for each next step, not proven best for a run, and does not see admissions. Tolerance: half a per
    cent.
    """
    users, method, acceptance = CASES[case]
    config = {"method": method, "num_speculative_tokens": 4} | (
        {"model": "llama-3.2-1b"} if method == "draft_model" else {}
    )
    kinds = ("oracle", "fixed", "goodput", "ema", "heuristic", "smart_spec")
    arms = {
        kind: {"speculative_config": config, "acceptance": acceptance, "draft_length": {"kind": kind}} for kind in kinds
    }
    for k in (1, 2):
        arms[f"k{k}"] = {"speculative_config": config | {"num_speculative_tokens": k}, "acceptance": acceptance}
    lengths = {"kind": "lognormal", "mean": 100, "cv": 0.5, "min": 5, "max": 400}
    scenario = load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": {"max_model_len": 4096, "max_num_seqs": 128},
            "arms": {"plain": {}} | arms,
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": users},
                "prompt_tokens": lengths,
                "output_tokens": lengths,
                "num_requests": max(10, 2 * users),
            },
        },
        Path(),
    ).scenario
    ends = {name: simulate(scenario, name, 0, Path()).requests.finish_ns.max() for name in scenario.arms}
    regret = {name: 1 - ends["oracle"] / end for name, end in ends.items() if name != "oracle"}
    assert min(regret.values()) >= -0.005
    assert np.mean(list(regret.values())) > 0.02
