"""Measured load tests against simulated ones: a server that is our own model agrees, and a changed one is found out."""

from typing import Any

import pytest

from sim.bench_results.base import Load, MeasuredPoint
from sim.errors import ScenarioError
from sim.experiment.executor import Serial
from sim.experiment.load_test import Bench, load_tests
from sim.experiment.overlay import METRICS, Overlay, overlay
from sim.scenario.load import LoadedScenario, load_mapping

USERS = (1, 8, 48)


def scenario(**sections: Any) -> LoadedScenario:
    """Real prices, a few short requests."""
    return load_mapping(
        {
            "name": "served",
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "arms": {
                "plain": {},
                "k3": {
                    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
                    "acceptance": {"kind": "iid", "rate": 0.7},
                },
            },
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 2},
                "prompt_tokens": {"kind": "fixed", "value": 200},
                "output_tokens": {"kind": "fixed", "value": 40},
            },
        }
        | sections
    )


def measured(
    loaded: LoadedScenario, loads: list[Load], arms: tuple[str, ...] = ("plain", "k3"), least: int = 0, **what_if: float
) -> dict[str, list[MeasuredPoint]]:
    """What a server would report that is our model with these factors; at least so many requests."""
    counts = [max(least, 2 * (load.max_concurrency or 12)) for load in loads]
    blank = {
        arm: [MeasuredPoint("made up", "none", load, num, 200, 40, {}) for load, num in zip(loads, counts, strict=True)]
        for arm in arms
    }
    tests, _ = load_tests(loaded, blank, take_lengths=False)
    found: dict[str, list[MeasuredPoint]] = {}
    for test, (row,) in zip(tests, Bench(tests, loaded.base_dir, 1, Serial()).rows(what_if), strict=True):
        metrics = {name: float(value) for name in METRICS if isinstance(value := row[name], int | float) and value > 0}
        point = MeasuredPoint("made up", "none", test.point.load, test.point.completed, 200, 40, metrics)
        found.setdefault(test.arm, []).append(point)
    return found


def laid_over(loaded: LoadedScenario, points: dict[str, list[MeasuredPoint]], **settings: Any) -> Overlay:
    return overlay(loaded, points, Serial(), replicates=1, **settings)


CLOSED = [Load(users) for users in USERS]


def test_our_own_results_agree_to_the_last_digit():
    loaded = scenario()
    found = laid_over(loaded, measured(loaded, CLOSED))
    assert {figure.metric for figure in found.figures} == set(METRICS)
    assert max(abs(figure.error) for figure in found.figures) < 1e-12
    assert all(figure.inside for figure in found.figures)
    assert found.attribution.alike == []
    assert [each.measured for each in found.speedups] == [each.simulated.estimate for each in found.speedups]
    assert len(found.speedups) == 2 * len(USERS)


@pytest.mark.parametrize(
    ("factor", "value"),
    [("verify_time", 1.3), ("acceptance", 0.85), ("target_time", 1.2), ("draft_time", 1.6), ("host_time", 5.0)],
)
def test_a_changed_server_is_found_out(factor, value):
    loaded = scenario()
    found = laid_over(loaded, measured(loaded, CLOSED, **{factor: value}))
    assert found.attribution.alike == [factor]
    assert not found.attribution.pair_needed
    interval = found.attribution.best.factors[factor]
    assert interval.low < value < interval.high
    assert interval.estimate == pytest.approx(value, rel=0.01)
    assert found.attribution.best.rms < 0.01 < found.attribution.before.rms


def test_factors_of_the_scenario_itself_are_kept():
    loaded = scenario(what_if={"target_time": 1.2})
    found = laid_over(loaded, measured(loaded, CLOSED[:1]))
    assert max(abs(figure.error) for figure in found.figures) < 1e-12


def test_at_equal_prices_verification_and_drafting_are_alike():
    """With constant step times both only add milliseconds to a speculative step."""
    loaded = scenario(cost_model={"kind": "constant", "target_ms": 10, "draft_ms": 1})
    found = laid_over(loaded, measured(loaded, CLOSED[:2], ("k3",), verify_time=1.2))
    assert {"verify_time", "draft_time"} <= set(found.attribution.alike)
    assert "host_time" in found.attribution.without_effect


def test_open_loops_are_simulated_at_their_rate():
    loaded = scenario()
    loads = [Load(None, 5.0), Load(None, 20.0, 4.0)]
    found = laid_over(loaded, measured(loaded, loads, ("plain",)))
    kinds = [test.scenario.workload.arrivals.kind for test in found.tests]
    assert kinds == ["poisson", "gamma"]
    assert max(abs(figure.error) for figure in found.figures) < 1e-12
    assert {"verify_time", "draft_time", "acceptance"} <= set(found.attribution.without_effect)


def test_throughput_is_that_of_the_whole_run_as_clients_count_it():
    loaded = scenario()
    (point,) = measured(loaded, [Load(8)], ("plain",))["plain"]
    alone = point.metrics["mean_e2el_ms"] / 1e3
    assert point.completed == 16
    assert 16 * 40 / point.metrics["output_throughput"] == pytest.approx(2 * alone, rel=0.05)  # two rounds of eight


def test_other_lengths_are_said_and_can_be_taken():
    loaded = scenario()
    points = measured(loaded, CLOSED[:1], ("plain",))["plain"]
    longer = [MeasuredPoint(p.source, p.tool, p.load, p.completed, 400, 40, p.metrics) for p in points]
    found = laid_over(loaded, {"plain": longer})
    assert any("prompts of 400 tokens on average, the scenario has 200" in note for note in found.notes)
    taken = laid_over(loaded, {"plain": longer}, take_lengths=True)
    assert taken.notes == []
    assert taken.tests[0].scenario.workload.prompt_tokens.value == 400


def test_what_cannot_be_compared_is_refused_at_once():
    loaded = scenario(
        workload={"arrivals": {"kind": "sessions", "session_rate": 1, "turns": {"kind": "fixed", "value": 2}}}
    )
    with pytest.raises(ScenarioError, match=r"(?s)no such arm: plan; .*did you mean plain\?.*kind sessions") as error:
        laid_over(loaded, {"plan": []})
    assert error.value.exit_code == 2


def test_two_servers_behind_a_router_are_simulated_as_such():
    loaded = scenario(replicas=2)
    found = laid_over(loaded, measured(loaded, [Load(48)], ("plain",)))
    alone = laid_over(scenario(), measured(scenario(), [Load(48)], ("plain",)))
    assert max(abs(figure.error) for figure in found.figures) < 1e-12
    assert found.figures[0].simulated > 1.1 * alone.figures[0].simulated


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_other_text_and_other_requests_hide_nothing_and_feign_nothing(seed):
    """The server's random numbers are not ours: within chance without a factor, the right one with it."""
    lengths = {"kind": "lognormal", "cv": 0.5, "min": 2}
    workload = {"prompt_tokens": lengths | {"mean": 200}, "output_tokens": lengths | {"mean": 40}}
    ours, theirs = scenario(workload=workload), scenario(workload=workload, seed=seed)
    same = overlay(ours, measured(theirs, CLOSED, least=100), Serial(), replicates=3)
    assert same.attribution.alike == []
    assert sum(figure.inside for figure in same.figures) >= 0.9 * len(same.figures)
    slower = overlay(ours, measured(theirs, CLOSED, least=100, verify_time=1.3), Serial(), replicates=3)
    assert slower.attribution.alike == ["verify_time"]
    assert slower.attribution.best.factors["verify_time"].estimate == pytest.approx(1.3, abs=0.05)
