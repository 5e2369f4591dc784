"""Flip points against closed forms: constant costs, one request at a time, one draft per step."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sim.errors import ScenarioError
from sim.experiment.executor import local_executor
from sim.experiment.inputs_in_doubt import INPUTS, Study, chosen_inputs
from sim.experiment.results import read_document
from sim.experiment.rounds import Work
from sim.experiment.sensitivity import Answer, sensitivity
from sim.scenario.load import LoadedScenario

Load = Callable[..., LoadedScenario]

TARGET_MS, DRAFT_MS, ALPHA, OUTPUT = 10.0, 2.0, 0.7, 41


def one_at_a_time(make: Load, alpha: float = ALPHA, **sections: Any) -> LoadedScenario:
    """Constant costs: a plain request takes `OUTPUT` steps of the target, a speculative one fewer, but longer ones."""
    arm = {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 1},
        "acceptance": {"kind": "iid", "rate": alpha},
    }
    workload = {
        "arrivals": {"kind": "closed", "max_concurrency": 1},
        "prompt_tokens": {"kind": "fixed", "value": 20},
        "output_tokens": {"kind": "fixed", "value": OUTPUT},
        "num_requests": 30,
    }
    cost = {"kind": "constant", "target_ms": TARGET_MS, "draft_ms": DRAFT_MS}
    engine = {"async_scheduling": False}
    given = {"arms": {"plain": {}, "k1": arm}, "workload": workload, "cost_model": cost, "engine": engine, "sweep": {}}
    return make(**given | sections)


def study(loaded: LoadedScenario, *names: str, **changes: Any) -> Study:
    given: dict[str, Any] = {
        "arm": "k1", "inputs": chosen_inputs(loaded.scenario, names or None), "ranges": {}, "searched": (0.25, 8.0),
        "objective": "output_throughput", "min_gain": 1.0, "replicates": 4, "confidence": 0.95,
    }  # fmt: skip
    return Study(**given | changes)


def ask(loaded: LoadedScenario, folder: Path, *names: str, **changes: Any) -> Answer:
    return sensitivity(loaded, study(loaded, *names, **changes), Work(folder, partial(local_executor, 1), None))


def steps(alpha: float) -> float:
    """Expected steps of a request: prefill emits one token, every later step one or, with probability alpha, two."""
    left = [0.0, 1.0]
    for _ in range(OUTPUT - 2):
        left.append(1.0 + (1 - alpha) * left[-1] + alpha * left[-2])
    return 1.0 + left[OUTPUT - 1]


def test_draft_time_flips_where_the_closed_form_says(small: Load, tmp_path: Path) -> None:
    """OUTPUT T = steps (T + f d) at f = (OUTPUT / steps - 1) T / d."""
    answer = ask(one_at_a_time(small), tmp_path, "draft_time")
    (row,) = answer.document["inputs"]
    (flip,) = row["flips"]
    expected = (OUTPUT / steps(ALPHA) - 1) * TARGET_MS / DRAFT_MS
    assert flip["ci_low"] <= expected <= flip["ci_high"]
    assert flip["factor"] == pytest.approx(expected, rel=0.05)
    assert flip["direction"] == "gain_to_loss"
    assert answer.document["decision"] == "pays"


def test_exact_without_randomness(small: Load, tmp_path: Path) -> None:
    """Every draft accepted: 20 steps of two tokens after the first; the interval shrinks to the point."""
    answer = ask(one_at_a_time(small, alpha=1.0), tmp_path, "draft_time", "verify_time", replicates=2)
    draft, verify = answer.document["inputs"]
    (flip,) = draft["flips"]
    assert flip["ci_high"] - flip["ci_low"] < 1e-6
    assert draft["flips"][0]["factor"] == pytest.approx((41 / 21 - 1) * 5, rel=0.005)
    # verified passes alone: 20 f T + T + 21 d = 41 T
    assert verify["flips"][0]["factor"] == pytest.approx((40 * 10 - 21 * 2) / 200, rel=0.005)


def test_min_gain_moves_the_flip(small: Load, tmp_path: Path) -> None:
    answer = ask(one_at_a_time(small, alpha=1.0), tmp_path, "draft_time", min_gain=1.25, replicates=2)
    (row,) = answer.document["inputs"]
    assert row["flips"][0]["factor"] == pytest.approx((41 / 21 / 1.25 - 1) * 5, rel=0.005)
    assert answer.document["speedup"]["estimate"] == pytest.approx(41 / 21 / 1.2, rel=1e-3)


def test_what_does_not_flip_is_said_with_its_range(small: Load, tmp_path: Path) -> None:
    """Lengths of prompts and a common factor on both arms' host time of zero change nothing."""
    answer = ask(one_at_a_time(small), tmp_path, "prompt_tokens", "host_time", searched=(0.5, 2.0), replicates=2)
    for row in answer.document["inputs"]:
        assert (row["status"], row["flips"], row["searched"]) == ("does_not_flip", [], [0.5, 2.0])
        low, high = row["speedup"]
        assert low["estimate"] == pytest.approx(high["estimate"], rel=1e-9)


def test_ranges_are_stated_with_their_source(small: Load, tmp_path: Path) -> None:
    names = ("acceptance", "draft_time", "output_tokens", "concurrency")
    loaded = one_at_a_time(small, cost_model={"kind": "roofline"})
    ranges = {"output_tokens": (0.5, 2.0)}
    answer = ask(loaded, tmp_path, *names, ranges=ranges, replicates=2, searched=(0.9, 1.1))
    rows = {row["input"]: row for row in answer.document["inputs"]}
    assert rows["acceptance"]["range_source"] == "+-10 % by convention"
    assert rows["acceptance"]["range"] == [0.9, 1.1]
    assert rows["draft_time"]["range_source"].startswith("relative error of the cost profile")
    assert (rows["output_tokens"]["range_source"], rows["output_tokens"]["range"]) == ("stated", [0.5, 2.0])
    assert rows["concurrency"]["stated"] == 1.0
    assert rows["concurrency"]["searched"][0] == 1.0, "not below one request at a time"
    low, high = (end["estimate"] for end in rows["acceptance"]["speedup"])
    assert low < answer.document["speedup"]["estimate"] < high


def test_the_folder_holds_the_answer_and_the_operating_point(small: Load, tmp_path: Path) -> None:
    vary = {"workload.arrivals.max_concurrency": [1, 2]}
    loaded = one_at_a_time(small, sweep={"replicates": 2, "vary": vary})
    answer = ask(loaded, tmp_path, "acceptance", replicates=2)
    assert read_document(answer.run_dir / "sensitivity.json") == answer.document
    assert answer.document["left_aside"] == list(vary)
    table = pd.read_csv(answer.run_dir / "sensitivity.csv")
    (row,) = table.to_dict("records")
    assert (row["input"], row["status"]) == ("acceptance", answer.document["inputs"][0]["status"])
    assert row["speedup_low"] == pytest.approx(answer.document["inputs"][0]["speedup"][0]["estimate"])
    assert read_document(answer.run_dir / "manifest.json")["replicates"] == 2


def test_a_throughput_that_repeats_the_arrival_rate_decides_nothing(small: Load, tmp_path: Path) -> None:
    loaded = one_at_a_time(small)
    traffic = loaded.scenario.workload.model_dump(mode="json") | {"arrivals": {"kind": "poisson", "request_rate": 2.0}}
    opened = one_at_a_time(small, workload=traffic)
    with pytest.raises(ScenarioError, match="both arms serve the offered load"):
        ask(opened, tmp_path, "draft_time")
    with pytest.raises(ScenarioError, match="no SLO is stated"):
        ask(loaded, tmp_path, "draft_time", objective="request_goodput")
    answer = ask(opened, tmp_path, "request_rate", objective="mean_tpot_ms", replicates=2, searched=(0.5, 2.0))
    (row,) = answer.document["inputs"]
    assert (row["stated"], row["searched"]) == (2.0, [0.5, 1.5])


def test_inputs_are_those_the_scenario_has(small: Load) -> None:
    scenario = one_at_a_time(small).scenario
    assert [one.name for one in chosen_inputs(scenario, None)] == [n for n in INPUTS if n != "request_rate"]
    assert [one.name for one in chosen_inputs(scenario, ["lengths"])] == ["prompt_tokens", "output_tokens"]
    with pytest.raises(ScenarioError, match="no such input: 'luck'; request_rate: this scenario has no") as wrong:
        chosen_inputs(scenario, ["luck", "request_rate"])
    assert "allowed: acceptance" in str(wrong.value)
