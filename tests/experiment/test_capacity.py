"""The load within an SLO: against the waiting-time law of M/D/1, and laws of the search and of fleets."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sim.experiment.capacity_setting import RANGES, Setting, limits_of
from sim.experiment.capacity_study import Study, study
from sim.experiment.carried import Limits, bracket, carried, ratio
from sim.experiment.evaluate import Evaluator
from sim.experiment.executor import Serial, local_executor
from sim.experiment.fleet import saved, smallest_fleet
from sim.experiment.load_axis import load_axis
from sim.experiment.power import energy
from sim.experiment.results import load as load_results
from sim.experiment.rounds import Work
from sim.report.capacity import capacity_text
from sim.report.plain_text import number
from sim.scenario.load import LoadedScenario, load_mapping

STEP_S = 0.01
ONE_TOKEN = {"kind": "fixed", "value": 1}


def queue(slo: dict[str, float], **changes: Any) -> LoadedScenario:
    """A server that takes one request at a time and 10 ms for it; the drafting arm wastes 2 ms on drafts."""
    return load_mapping(
        {
            "hardware": {"gpu": "h100-sxm", "cost_per_gpu_hour_usd": 3.6},
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "constant", "target_ms": 1000 * STEP_S, "draft_ms": 2.0},
            "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 64, "max_model_len": 64},
            "arms": {"plain": {}},
            "workload": {
                "arrivals": {"kind": "poisson", "request_rate": 1},
                "prompt_tokens": {"kind": "fixed", "value": 8},
                "output_tokens": {"kind": "fixed", "value": 1},
                "num_requests": 1000,
            },
            "slo": slo,
            **changes,
        }
    )


def run(loaded: LoadedScenario, out: Path, load: float | None = None, over: str = "request_rate", **how: Any) -> Study:
    """A study in this process; options of `Setting` in `how`."""
    options = {"replicates": 3, "max_replicates": 3, "tolerance": 0.15, **how}
    limits = options.pop("range", RANGES[over])
    setting = Setting(loaded, limits_of(loaded.scenario.slo), load_axis(loaded, over), limits, **options)
    return study(setting, Work(out, lambda: local_executor(1)), load)


def waits_at_most(steps: float, rho: float) -> float:
    """P(W <= steps * S) of M/D/1 (Erlang 1909)."""
    terms = ((-1.0) ** k * (rho * (steps - k)) ** k / math.factorial(k) * math.exp(rho * (steps - k))
             for k in range(math.floor(steps) + 1))  # fmt: skip
    return (1 - rho) * sum(terms)


def test_erlang_s_law_has_the_known_values() -> None:
    assert waits_at_most(0, 0.5) == pytest.approx(0.5)
    mean = sum(1 - waits_at_most(i / 200, 0.8) for i in range(20 * 200)) / 200
    assert mean == pytest.approx(2.0, rel=0.01)  # rho / (2 (1 - rho))


def test_capacity_of_m_d_1_is_where_its_waiting_time_law_puts_it(tmp_path: Path) -> None:
    """90 % of the requests within 5 service times: answered after at most 4 of waiting."""
    low, high = 0.5, 0.99
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(4, middle) >= 0.9 else (low, middle)
    found = run(queue({"ttft": 5 * STEP_S * 1000, "percentile": 90.0}), tmp_path, replicates=4, max_replicates=4)
    arm = found.document["arms"]["plain"]
    assert arm["status"] == "found"
    assert arm["limited_by"] == "ttft"
    assert arm["capacity"]["ci_low"] <= low / STEP_S <= arm["capacity"]["ci_high"]
    assert arm["capacity"]["value"] == pytest.approx(low / STEP_S, rel=0.1)
    assert arm["at"]["load"] <= arm["capacity"]["value"]
    assert arm["at"]["usd_per_mtok_output"] == pytest.approx(3.6 / 3600 / arm["at"]["output_throughput"] * 1e6)
    assert json.loads((found.run_dir / "capacity.json").read_text()) == found.document
    assert "plain" in set(load_results(found.run_dir).summary["arm"])


@pytest.mark.slow
def test_a_wide_slo_is_limited_by_saturation_and_a_wider_one_carries_no_less(tmp_path: Path) -> None:
    capacities = []
    for steps in (3, 6, 12, 1e6):
        slo = {"ttft": steps * STEP_S * 1000, "percentile": 90.0}
        arm = run(queue(slo), tmp_path).document["arms"]["plain"]
        capacities.append(arm["capacity"]["value"])
    assert capacities == sorted(capacities)
    assert arm["limited_by"] == "saturation"
    assert arm["saturated_from"] == pytest.approx(1 / STEP_S, rel=0.25)
    assert arm["capacity"]["value"] == pytest.approx(1 / STEP_S, rel=0.15)


def test_an_slo_that_fails_on_an_empty_server_carries_nothing(tmp_path: Path) -> None:
    found = run(queue({"ttft": 9.0}), tmp_path, load=40.0)
    arm = found.document["arms"]["plain"]
    assert (arm["status"], arm["limited_by"], arm["capacity"]) == ("never", "ttft", None)
    assert found.document["fleet"]["unknown"] == ["plain"]


def test_loads_outside_of_the_range_are_not_guessed(tmp_path: Path) -> None:
    loaded = queue({"ttft": 50.0, "percentile": 90.0})
    above = run(loaded, tmp_path / "a", range=(10.0, 20.0), replicates=2).document["arms"]["plain"]
    assert (above["status"], above["capacity"], above["limited_by"]) == ("above range", None, "")
    assert max(above["tested"]) == 20.0
    below = run(loaded, tmp_path / "b", range=(200.0, 400.0), replicates=2).document["arms"]["plain"]
    assert (below["status"], below["capacity"]) == ("below range", None)


WORKLOAD: dict[str, Any] = {
    "arrivals": {"kind": "poisson", "request_rate": 1},
    "prompt_tokens": {"kind": "fixed", "value": 8},
    "output_tokens": {"kind": "fixed", "value": 8},
    "num_requests": 400,
}


def test_a_fleet_grows_or_shrinks_from_its_estimate_to_the_smallest() -> None:
    loaded = queue({"ttft": 30.0, "percentile": 80.0}, workload={**WORKLOAD, "output_tokens": ONE_TOKEN})
    setting = Setting(loaded, limits_of(loaded.scenario.slo), load_axis(loaded, "request_rate"), (1, 1e4), replicates=2)
    evaluator = Evaluator(Serial(), loaded.base_dir)
    from_below = smallest_fleet(setting, evaluator, "plain", 220.0, 1000.0, 1.0)
    from_above = smallest_fleet(setting, evaluator, "plain", 220.0, 50.0, 1.0)
    assert (from_below.expected, from_above.expected) == (1, 5)
    assert from_below.replicas == from_above.replicas == 3  # 2.2 servers are busy on average
    assert [one.carried for one in from_above.tried] == [False, True, True, True]
    assert saved(from_below, from_above, gpus=8) == [0, 0]


@pytest.mark.slow
def test_fleets_are_the_smallest_that_carry_the_load_and_arms_are_paired(tmp_path: Path) -> None:
    draft = {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}}
    arms = {"plain": {}, "eagle3": {**draft, "acceptance": {"kind": "iid", "rate": 0.8}}}
    loaded = queue({"ttft": 400.0, "percentile": 90.0}, arms=arms, workload=WORKLOAD)
    document = run(loaded, tmp_path, load=40.0, replicates=2).document
    better = document["arms"]["eagle3"]["ratio"]
    assert better["verdict"] == "better"
    fleet = document["fleet"]
    plain, eagle = fleet["arms"]["plain"], fleet["arms"]["eagle3"]
    # 8 steps of 10 ms each for 40 requests/s keep 3.2 servers busy; a fleet waits less than its parts.
    assert plain["replicas"] == 4
    assert plain["expected_replicas"] >= plain["replicas"]
    for found in (plain, eagle):
        tried = {one["replicas"]: one["carried"] for one in found["tried"]}
        assert tried[found["replicas"]]
        assert found["replicas"] == 1 or not tried[found["replicas"] - 1]
        assert found["gpus"] == found["replicas"]
        assert found["usd_per_hour"] == pytest.approx(3.6 * found["gpus"])
    assert eagle["gpus_saved"]["value"] == plain["gpus"] - eagle["gpus"] > 0
    per = eagle["gpus_saved"]["gpus_per_gpu"]
    assert per["ci_low"] <= 1 / better["value"] <= per["ci_high"]


def test_concurrency_is_searched_in_whole_users(tmp_path: Path) -> None:
    # One request of 8 steps at a time: user n waits for n - 1 others, so 400 ms hold 5 of them.
    loaded = queue({"e2el": 400.0}, workload={**WORKLOAD, "num_requests": 120})
    found = run(loaded, tmp_path, over="concurrency", replicates=2).document
    arm = found["arms"]["plain"]
    assert found["unit"] == "users"
    assert {5, 6} <= set(arm["tested"])
    assert 5 <= arm["capacity"]["value"] <= 6
    assert any("fewer than 1000" in note for note in found["notes"])


#: A long run with few requests in the system at a time.
LENGTH: dict[str, Any] = {"num_warmup": 100, "num_measured": 850, "num_cooldown": 50, "steady": True}
LENGTH |= {"mean_running": 8.0, "mean_waiting": 2.0, "max_concurrency": None}


def rows(*shares: float, saturated: bool = False) -> list[tuple[float, dict[str, Any]]]:
    """Loads 1, 2, ... with these shares of good requests; the last one may be saturated."""
    tails = {"p90_ttft_ms": 100.0, "p90_tpot_ms": 10.0}
    found = [{"goodput_frac": share, "saturated": False, **tails, **LENGTH} for share in shares]
    found[-1]["saturated"] = saturated
    return [(float(load), row) for load, row in enumerate(found, 1)]


LIMITS = Limits({"ttft": 90.0, "tpot": 20.0}, 0.9)


def test_brackets_end_at_the_first_load_that_is_not_carried() -> None:
    assert bracket(rows(0.95, 0.85, 0.95), LIMITS).low == 1.0
    assert bracket(rows(0.95, 0.85, 0.95), LIMITS).estimate == pytest.approx(math.sqrt(2))
    assert bracket(rows(0.8, 0.8), LIMITS).open_end == "below"
    assert bracket(rows(0.95, 0.95), LIMITS).open_end == "above"
    growing = bracket(rows(0.95, 0.95, saturated=True), LIMITS)
    assert (growing.low, growing.high) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("changes", "judged"),
    [
        ({}, "carried"),
        ({"saturated": True}, "missed"),
        ({"mean_running": 260.0, "mean_waiting": 0.0}, "too short"),  # 1,000 requests fill it fewer than 4 times
        ({"mean_running": 260.0, "mean_waiting": 0.0, "saturated": True}, "too short"),  # it grows because it fills
        ({"mean_running": 260.0, "mean_waiting": 90.0, "saturated": True}, "missed"),  # it is full, and a queue grows
        ({"mean_running": 260.0, "mean_waiting": 0.0, "goodput_frac": 0.5}, "missed"),
        ({"num_measured": 0, "num_warmup": 60, "num_cooldown": 0}, "too short"),  # saturation is not looked for
        ({"num_measured": 60, "num_warmup": 0, "num_cooldown": 0, "mean_running": 0.4}, "carried"),
        ({"steady": False}, "too short"),
        ({"max_concurrency": 260, "mean_running": 260.0}, "carried"),
    ],
)
def test_a_run_is_judged_by_what_its_length_can_tell(changes: dict[str, Any], judged: str) -> None:
    (_, row), *_ = rows(0.95)
    assert LIMITS.judged(row | changes) == judged


def test_a_load_whose_run_is_too_short_ends_the_bracket_openly() -> None:
    (one, first), (two, second), (three, third) = rows(0.95, 0.95, 0.5)
    found = bracket([(one, first), (two, second | {"steady": False}), (three, third)], LIMITS)
    assert (found.low, found.high, found.open_end) == (1.0, 2.0, "too short")
    mixed = carried([(one, {0: first, 1: first}), (two, {0: third, 1: second | {"steady": False}})], LIMITS, 0.95)
    assert (mixed.open_end, mixed.interval, mixed.limited_by) == ("too short", None, "")


FULL = {"max_num_seqs": 8, "max_num_batched_tokens": 512, "max_model_len": 64}


def test_few_requests_give_a_lower_bound_and_not_an_answer(tmp_path: Path) -> None:
    """Eight seats of 80 ms carry 100 requests/s; 60 requests, all of which find a seat, cannot show that."""
    loaded = queue({"ttft": 1000.0}, engine=FULL, workload={**WORKLOAD, "num_requests": 60})
    study = run(loaded, tmp_path, load=400.0, replicates=2)
    arm = study.document["arms"]["plain"]
    assert (arm["status"], arm["capacity"], arm["limited_by"]) == ("too short", None, "")
    assert 5 < arm["at"]["load"] < arm["too_short_from"] < 100
    assert arm["saturated_from"] is None
    text = " ".join(capacity_text(study.document).split())
    assert f"plain: at least {number(arm['at']['load'])} requests/s" in text
    assert "too short to tell" in text
    assert "raise the upper end" not in text


def test_a_search_that_chooses_the_length_makes_runs_long_enough(tmp_path: Path) -> None:
    loaded = queue({"ttft": 1000.0}, engine=FULL, workload={**WORKLOAD, "num_requests": None})
    arm = run(loaded, tmp_path, replicates=2, max_replicates=2).document["arms"]["plain"]
    assert arm["status"] in ("found", "not resolved")
    assert arm["capacity"]["value"] == pytest.approx(100, rel=0.15)


def test_a_fleet_whose_runs_are_too_short_is_not_known() -> None:
    workload = {**WORKLOAD, "num_requests": 60}
    loaded = queue({"ttft": 1000.0}, engine=FULL, workload=workload)
    setting = Setting(loaded, limits_of(loaded.scenario.slo), load_axis(loaded, "request_rate"), (1, 1e4), replicates=2)
    fleet = smallest_fleet(setting, Evaluator(Serial(), loaded.base_dir), "plain", 2000.0, 100.0, 8.0)
    assert (fleet.expected, fleet.replicas, len(fleet.tried)) == (20, None, 1)
    assert fleet.tried[0].too_short


def test_what_stops_an_arm_is_named() -> None:
    by_limit = carried([(load, {0: row, 1: row}) for load, row in rows(0.95, 0.85)], LIMITS, 0.95)
    assert by_limit.limited_by == "ttft"
    growing = carried([(load, {0: row, 1: row}) for load, row in rows(0.95, 0.2, saturated=True)], LIMITS, 0.95)
    assert growing.limited_by == "saturation"
    assert ratio(by_limit, by_limit, 0.95).estimate == pytest.approx(1.0)


def test_energy_lies_between_idle_and_the_power_limit() -> None:
    idle, full = energy(700.0, 2, 0.0, 0.0, 100.0), energy(700.0, 2, 1.0, 1.0, 100.0)
    assert 0 < idle.watts < full.watts <= 2 * 700.0
    assert full.joules_per_token == pytest.approx(full.watts / 100.0)
    mixed = energy(700.0, 1, 0.8, 0.3, 1000.0)
    assert mixed.low < mixed.joules_per_token < mixed.high
