"""Results folders against each other: what is matched, what is paired, and what limits say about it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sim.errors import ResultsError, ScenarioError
from sim.experiment.differences import Comparison, Difference, Wanted, compare_folders, summary_metrics
from sim.experiment.results import Experiment, load
from sim.experiment.run import run
from sim.experiment.thresholds import judge_limits, parse_limits
from sim.experiment.what_differs import what_differs
from sim.scenario.load import LoadedScenario

Load = Callable[..., LoadedScenario]
Folder = Callable[..., Experiment]
AXIS = "workload.arrivals.max_concurrency"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A results folder with these values of one metric: (arm, concurrency) -> one per replicate."""

    def make(
        name: str,
        values: Mapping[tuple[str, int], Sequence[float | None]],
        metric: str = "p99_ttft_ms",
        seed: int = 0,
        **more: object,
    ) -> Experiment:
        place = tmp_path / name
        place.mkdir()
        rows = [
            {"cell_id": f"c{x}", "arm": arm, "replicate": r, "seed": seed, "max_concurrency": x, "saturated": False}
            | {metric: value}
            | more
            for (arm, x), column in values.items()
            for r, value in enumerate(column)
        ]
        cells = [{"cell_id": f"c{x}", "vary": {AXIS: x}, "state": "done"} for x in dict.fromkeys(x for _, x in values)]
        arms = list(dict.fromkeys(arm for arm, _ in values))
        manifest = {"schema_version": 1, "seed": seed, "arms": arms, "status": "done", "cells": cells, "code": "abc"}
        (place / "manifest.json").write_text(json.dumps(manifest))
        (place / "summary.json").write_text(json.dumps({"rows": rows}))
        (place / "scenario.resolved.yaml").write_text(f"name: {name}\nseed: {seed}\n")
        return load(place)

    return make


def only(comparison: Comparison) -> Difference:
    (found,) = comparison.differences
    return found


BASE = [100.0, 140.0, 90.0, 120.0, 110.0]
RAISED = [111.0, 152.0, 99.5, 134.0, 120.0]
TTFT = Wanted(metrics=("p99_ttft_ms",))


def test_same_seed_pairs_replicates(folder: Folder) -> None:
    pair = [folder("a", {("k3", 8): BASE}), folder("b", {("k3", 8): RAISED})]
    found = only(compare_folders(pair, TTFT))
    steps = np.subtract(RAISED, BASE)
    logs = np.log(np.divide(RAISED, BASE))
    low, high = stats.t.interval(0.95, 4, loc=steps.mean(), scale=stats.sem(steps))
    assert (found.difference.low, found.difference.high) == (pytest.approx(low), pytest.approx(high))
    low, high = np.expm1(stats.t.interval(0.95, 4, loc=logs.mean(), scale=stats.sem(logs)))
    assert found.change is not None
    assert (found.change.low, found.change.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.paired, found.num, found.verdict) == (True, 5, "worse")
    assert found.value == pytest.approx(np.mean(RAISED))


def test_the_verdict_is_that_of_the_interval_that_is_shown(folder: Folder) -> None:
    """Both runs lose 10 ms, which is a tenth of one and nearly all of the other."""
    found = only(
        compare_folders([folder("a", {("k3", 8): [100.0, 10.0]}), folder("b", {("k3", 8): [90.0, 0.1]})], TTFT)
    )
    assert found.difference.high is not None
    assert found.difference.high < 0
    assert found.change is not None
    assert found.change.high is not None
    assert found.change.high > 0
    assert found.verdict == "not resolved"


def test_fields_that_differ_are_named_with_both_values(folder: Folder) -> None:
    pair = [folder(name, {("k3", 8): BASE}) for name in ("a", "b")]
    for one, text in zip(pair, ("{k: 3, rate: 0.7}\nslo: null", "{k: 3, rate: 0.8}\nslo: {ttft: 5.0}"), strict=True):
        (one.run_dir / "scenario.resolved.yaml").write_text(f"name: {one.run_dir.name}\narms: {text}\n")
    assert (
        what_differs(*pair)
        == f'differs from {pair[0].run_dir} in arms.rate (0.7, here 0.8), slo (null, here {{"ttft": 5.0}})'
    )
    (pair[1].run_dir / "scenario.resolved.yaml").write_text(
        "arms: {" + ", ".join(f"k{i}: {i}" for i in range(12)) + "}\n"
    )
    assert what_differs(*pair).endswith("(absent, here 5), 7 more fields")
    assert what_differs(pair[0], pair[0]) == "same code and scenario"


def test_other_seeds_are_welch_and_say_so(folder: Folder) -> None:
    pair = [folder("a", {("k3", 8): BASE}), folder("b", {("k3", 8): RAISED[:4]}, seed=1)]
    comparison = compare_folders(pair, TTFT)
    found = only(comparison)
    expected = stats.ttest_ind(RAISED[:4], BASE, equal_var=False).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert (found.paired, found.num_base, found.num, found.verdict) == (False, 5, 4, "not resolved")
    assert any("not paired" in note for note in comparison.notes)


def test_replicates_that_one_side_lacks_are_left_out_of_pairs(folder: Folder) -> None:
    pair = [folder("a", {("k3", 8): BASE}), folder("b", {("k3", 8): [*RAISED[:2], None]})]
    assert (only(compare_folders(pair, TTFT)).num, only(compare_folders(pair, TTFT)).num_base) == (2, 2)
    lonely = [pair[0], folder("c", {("k3", 8): RAISED[:1]})]
    assert only(compare_folders(lonely, TTFT)).verdict == "not resolved"


def test_no_change_is_called_the_same(folder: Folder) -> None:
    pair = [folder("a", {("k3", 8): BASE}), folder("b", {("k3", 8): BASE})]
    comparison = compare_folders(pair, TTFT)
    assert only(comparison).verdict == "same"
    assert any("same code and scenario" in note for note in comparison.notes)


def test_what_is_on_one_side_only_is_named(folder: Folder) -> None:
    pair = [folder("a", {("k3", 8): BASE, ("k3", 16): BASE}), folder("b", {("k3", 8): RAISED, ("k5", 8): RAISED})]
    comparison = compare_folders(pair, TTFT)
    assert only(comparison).vary == {AXIS: 8}
    assert any("only in" in note and "16" in note for note in comparison.notes)
    assert only(compare_folders(pair, Wanted([("k3", "k5")], TTFT.metrics))).arm == "k3>k5"
    with pytest.raises(ResultsError, match="NAME_IN_A:NAME_IN_B"):
        compare_folders(pair, Wanted([("k3", "k3"), ("k4", "k5")]))
    with pytest.raises(ResultsError, match="no operating point in common"):
        compare_folders([pair[0], folder("d", {("k3", 9): BASE})], TTFT)


def test_figures_that_say_nothing_get_no_verdict(folder: Folder) -> None:
    opened = {"metric": "output_throughput", "max_concurrency": None}
    pair = [folder("a", {("k3", 8): BASE}, **opened), folder("b", {("k3", 8): RAISED}, **opened)]
    assert "offered load" in only(compare_folders(pair, Wanted(metrics=("output_throughput",)))).note
    full = [folder(name, {("k3", 8): BASE}, saturated=True) for name in ("c", "d")]
    found = only(compare_folders(full, TTFT))
    assert "saturated" in found.note
    (judged,) = judge_limits(parse_limits(["p99_ttft_ms>5%"], ["p99_ttft_ms"]), [found])
    assert judged.state == "not resolved"


def test_columns_that_are_neither_good_nor_bad_rise_or_fall(folder: Folder) -> None:
    pair = [folder(name, {("k3", 8): column}, "mean_running") for name, column in (("a", BASE), ("b", RAISED))]
    assert only(compare_folders(pair, Wanted(metrics=("mean_running",)))).verdict == "higher"
    assert "mean_running" in summary_metrics(pair)
    assert "seed" not in summary_metrics(pair)


@pytest.mark.parametrize(
    ("limit", "state"),
    [
        ("p99_ttft_ms>+5%", "failed"),  # the change is +9.8 % (8.3 to 11.3)
        ("p99_ttft_ms > 20 %", "held"),
        ("p99_ttft_ms>+10%", "not resolved"),
        ("p99_ttft_ms>5", "failed"),  # the difference is 11.3 (9.5 to 13.1) ms
        ("p99_ttft_ms>11", "not resolved"),
        ("p99_ttft_ms<20", "failed"),
        ("p99_ttft_ms<-5%", "held"),
        ("p99_ttft_ms<+1.5e1%", "failed"),
    ],
)
def test_limits_fail_only_beyond_the_interval(folder: Folder, limit: str, state: str) -> None:
    pair = [folder("a", {("k3", 8): BASE}), folder("b", {("k3", 8): RAISED})]
    found = compare_folders(pair, TTFT).differences
    (judged,) = judge_limits(parse_limits([limit], ["p99_ttft_ms"]), found)
    assert judged.state == state


def test_a_limit_on_the_bound_itself_holds(folder: Folder) -> None:
    pair = [folder(name, {("k3", 8): BASE}) for name in ("a", "b")]
    found = compare_folders(pair, TTFT).differences
    limits = parse_limits(["p99_ttft_ms>0%", "p99_ttft_ms<0"], ["p99_ttft_ms"])
    assert [each.state for each in judge_limits(limits, found)] == ["held", "held"]


def test_wrong_limits_are_named_all_at_once() -> None:
    with pytest.raises(ScenarioError) as wrong:
        parse_limits(["p99_tft_ms>5%", "p99_ttft_ms=3", ">5", "nonsense>1"], ["p99_ttft_ms", "mean_tpot_ms"])
    assert len(wrong.value.problems) == 4
    assert "did you mean p99_ttft_ms?" in str(wrong.value)


def test_a_limit_that_checks_nothing_is_an_error(folder: Folder) -> None:
    pair = [folder(name, {("k3", 8): BASE}) for name in ("a", "b")]
    found = compare_folders(pair, TTFT).differences
    with pytest.raises(ScenarioError, match="no run on both sides"):
        judge_limits(parse_limits(["mean_tpot_ms>5%"], ["mean_tpot_ms"]), found)


def test_false_alarms_are_as_rare_as_the_interval_says(folder: Folder) -> None:
    """At no true change `> 0` fails in 2.5 % of 1000 comparisons; three binomial standard errors are 1.5 points."""
    rng = np.random.default_rng(5)
    values = {("k3", x): (100 * rng.lognormal(0, 0.3, 5)) for x in range(1, 1001)}
    moved = {key: list(column * rng.lognormal(0, 0.02, 5)) for key, column in values.items()}
    pair = [folder("a", {key: list(column) for key, column in values.items()}), folder("b", moved)]
    judged = judge_limits(parse_limits(["p99_ttft_ms>0%"], ["p99_ttft_ms"]), compare_folders(pair, TTFT).differences)
    assert abs(sum(each.state == "failed" for each in judged) / 1000 - 0.025) < 0.015


def test_real_folders_of_other_settings_are_paired(small: Load, tmp_path: Path) -> None:
    slower = small(cost_model={"kind": "constant", "target_ms": 10, "draft_ms": 1.5})
    folders = [load(run(loaded, tmp_path / name, jobs=1)) for name, loaded in (("a", small()), ("b", slower))]
    comparison = compare_folders(folders, Wanted(metrics=("output_throughput",)))
    by_arm = {(each.arm, each.vary[AXIS]): each for each in comparison.differences}
    assert {arm for arm, _ in by_arm} == {"plain", "k3"}
    for x in (1, 2, 4):
        assert by_arm["plain", x].verdict == "same"
        assert by_arm["k3", x].paired
    lone = by_arm["k3", 1].change
    assert lone is not None
    assert lone.estimate == pytest.approx(13 / 14.5 - 1, rel=0.02)  # all steps but prefill get 13 -> 14.5 ms
    assert any("cost_model" in note for note in comparison.notes)
