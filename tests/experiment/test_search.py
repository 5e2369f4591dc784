"""The search for break-even points: what it adds, when it stops, what it claims."""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.experiment.axes import AXES, axis_of, first_sweep, spread
from sim.experiment.break_even import Question, arms_document, slices
from sim.experiment.compare import Runs, runs_by_arm
from sim.experiment.curve import Curve, judge
from sim.experiment.executor import local_executor
from sim.experiment.plan import Plan
from sim.experiment.questions import Search, all_questions, search
from sim.experiment.results import load
from sim.experiment.rounds import HowToRun, Work
from sim.experiment.run import Interrupted, find_unfinished, run
from sim.experiment.search import refine
from sim.metrics.statistics import mean_interval
from sim.scenario.cells import Cell
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario

Load = Callable[..., LoadedScenario]
AXIS = "workload.arrivals.max_concurrency"
Gain = Callable[[float], float]


def made_up(x: float, replicate: int, gain: Gain, noise: float, seed: int) -> list[dict[str, object]]:
    """Rows of both arms at one load: the log speed-up is `gain(x)` and noise of its own."""
    error = np.random.default_rng([seed, round(x * 1000), replicate]).normal(0, noise) if noise else 0.0
    shared = {"cell_id": f"c{x:g}", "replicate": replicate, "saturated": False, "max_concurrency": x}
    shared |= {"mean_running": x, "mean_waiting": 0.0, "kv_usage_p99": 0.2, "preemptions": 0}
    rates = {"plain": 100.0, "k3": 100.0 * math.exp(gain(x) + error)}
    return [{**shared, "arm": arm, "output_throughput": rate} for arm, rate in rates.items()]


def round_of(scenario: Scenario, gain: Gain, noise: float, seed: int) -> tuple[Plan, Runs]:
    """What one round would leave if the speed-up were `gain`."""
    values = [float(str(value)) for value in scenario.sweep.vary[AXIS]]
    cells = tuple(Cell(f"c{x:g}", {AXIS: x}, scenario) for x in values)
    rows = [row for x in values for r in range(scenario.sweep.replicates) for row in made_up(x, r, gain, noise, seed)]
    return Plan(scenario, Path(), cells, ()), runs_by_arm(rows)  # type: ignore[arg-type]


def searched(scenario: Scenario, gain: Gain, noise: float = 0.0, seed: int = 0) -> tuple[Scenario, dict[str, Any], int]:
    """The last round of a search, what it says, and the number of rounds."""
    for rounds in range(1, 200):
        plan, runs = round_of(scenario, gain, noise, seed)
        following = refine(plan, runs)
        if following is None:
            cells = [(cell.cell_id, cell.vary) for cell in plan.cells]
            ((_, points),) = slices(cells, AXIS)
            question = Question(AXIS, ("output_throughput",), 0.95, "plain")
            document = arms_document(runs, points, scenario.arms, question, {})
            return scenario, document["k3"]["output_throughput"], rounds  # type: ignore[index]
        assert len(following.sweep.vary[AXIS]) >= len(scenario.sweep.vary[AXIS])
        assert following.sweep.replicates >= scenario.sweep.replicates
        scenario = following
    raise AssertionError("the search does not end")


def begin(small: Load, values: Sequence[float], replicates: int = 5, **settings: object) -> Scenario:
    breakeven = {"objectives": ["output_throughput"]} | settings
    sweep = {"replicates": replicates, "vary": {AXIS: list(values)}, "breakeven": breakeven}
    return small(sweep=sweep).scenario


TRUTH = 20.4


def falling(x: float) -> float:
    """Crosses at one place."""
    return 0.2 * math.log2(TRUTH / x)


WAVY_TRUTH = [3.7, 11.0, 40.0, 90.0]


def wavy(x: float) -> float:
    """Crosses at four places, starting with a loss."""
    return -0.3 * math.prod(math.log2(place / x) for place in WAVY_TRUTH) / 20


def test_points_are_added_until_the_crossing_is_bracketed(small: Load) -> None:
    scenario, answer, _ = searched(begin(small, [1, 4, 16, 64, 256], tolerance=0.1), falling)
    (crossing,) = answer["crossings"]
    low, high = crossing["bracket"]
    assert low < TRUTH < high
    assert high / low <= 1.1 or high - low == 1
    assert len(scenario.sweep.vary[AXIS]) <= 9
    assert scenario.sweep.replicates == 5  # nothing is uncertain


def test_every_crossing_of_a_wave_is_found_and_sharpened(small: Load) -> None:
    _, answer, _ = searched(begin(small, [1, 2, 4, 8, 16, 32, 64, 128], max_points=60), wavy)
    assert [c["direction"] for c in answer["crossings"]] == ["loss_to_gain", "gain_to_loss"] * 2
    for crossing, truth in zip(answer["crossings"], WAVY_TRUTH, strict=True):
        assert crossing["value"] == pytest.approx(truth, rel=0.1)


@settings(max_examples=15, deadline=None)
@given(
    places=st.lists(st.floats(1.5, 200), min_size=0, max_size=4, unique=True),
    sign=st.sampled_from([-1, 1]),
    noise=st.sampled_from([0.0, 0.01, 0.1]),
    max_points=st.integers(5, 20),
)
def test_a_search_ends_within_its_range_and_its_limits(
    small_scenario: Scenario, places: list[float], sign: int, noise: float, max_points: int
) -> None:
    def gain(x: float) -> float:
        return sign * 0.1 * math.prod(math.log2(place / x) for place in places)

    breakeven = small_scenario.sweep.breakeven
    assert breakeven is not None
    breakeven = breakeven.model_copy(update={"max_points": max_points, "max_replicates": 8})
    sweep = small_scenario.sweep.model_copy(update={"breakeven": breakeven})
    first = small_scenario.model_copy(update={"sweep": sweep})
    last, answer, _ = searched(first, gain, noise)
    values = [float(str(value)) for value in last.sweep.vary[AXIS]]
    assert values == sorted(set(values))
    assert (values[0], values[-1]) == (1, 256)
    assert len(values) <= max(max_points, 5)
    assert last.sweep.replicates <= 8
    assert searched(first, gain, noise)[:2] == (last, answer)  # a decision depends on results alone


@pytest.fixture(scope="module")
def small_scenario() -> Scenario:
    from sim.scenario.load import load_mapping

    arms = {
        "plain": {},
        "k3": {
            "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
            "acceptance": {"kind": "iid", "rate": 0.7},
        },
    }
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "constant", "target_ms": 10, "draft_ms": 1},
            "arms": arms,
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 2},
                "prompt_tokens": {"kind": "fixed", "value": 60},
                "output_tokens": {"kind": "fixed", "value": 30},
            },
            "sweep": {"vary": {AXIS: [1, 4, 16, 64, 256]}, "breakeven": {"objectives": ["output_throughput"]}},
        }
    ).scenario


CURVES = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-1, 1, allow_nan=False), min_size=n, max_size=n),
        st.floats(0, 0.3),
        st.integers(2, 8),
        st.integers(0, 2**32 - 1),
    )
)


@settings(max_examples=40, deadline=None)
@given(CURVES)
def test_nothing_is_ever_extrapolated(case: tuple[list[float], float, int, int]) -> None:
    """Every reported place lies between two tested loads with resolved, opposite signs; so does its interval."""
    means, spread_of_noise, replicates, seed = case
    x = np.geomspace(1, 500, len(means))
    noise = np.random.default_rng(seed).normal(0, spread_of_noise, (replicates, len(means)))
    curve = Curve(x, np.array([means] * replicates) + noise)
    verdict = judge(curve, 0.95)
    for crossing in verdict.crossings:
        low, high = (int(np.flatnonzero(x == end)[0]) for end in crossing.bracket)
        before, after = (mean_interval(curve.logs[:, i].tolist(), 0.95) for i in (low, high))
        if crossing.direction == "loss_to_gain":
            before, after = after, before
        assert before.low is not None
        assert after.high is not None
        assert before.low > 0 > after.high
        assert crossing.bracket[0] <= crossing.value <= crossing.bracket[1]
        assert crossing.bracket[0] <= crossing.ci_low <= crossing.ci_high <= crossing.bracket[1]
    if verdict.status in ("always", "never"):
        assert not {x[0], x[-1]} & set(verdict.unresolved)


def test_unclear_answers_ask_for_replicates_up_to_the_limit(small: Load) -> None:
    last, answer, _ = searched(begin(small, [1, 4, 16], max_replicates=12), lambda x: 0.0, noise=0.1)
    assert last.sweep.replicates == 12
    assert answer["status"] == "indeterminate"
    last, answer, _ = searched(begin(small, [1, 4, 16], max_replicates=40), lambda x: 0.06, noise=0.05, seed=1)
    assert answer["status"] == "always"
    assert 5 <= last.sweep.replicates < 40


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_searching_costs_little_coverage(small: Load, noise: float) -> None:
    """The nominal 95 % interval after points and replicates were added by looking at the data, at default settings.

    300 searches: three binomial standard errors are 3.8 points; two points are what looking may cost.
    """
    begun = begin(small, [1, 2, 4, 8, 16, 32, 64, 128, 256])
    hits, found, grown = 0, 0, 0
    for seed in range(300):
        last, answer, _ = searched(begun, falling, noise=noise, seed=seed)
        grown += len(last.sweep.vary[AXIS]) > 9 or last.sweep.replicates > 5
        for crossing in answer["crossings"]:
            found += 1
            hits += crossing["ci_low"] <= TRUTH <= crossing["ci_high"]
    assert found >= 295
    assert grown > 100  # the search was at work
    assert 0.95 - 0.02 - 0.038 < hits / found < 0.95 + 0.038


# ------------------------------------------------------------------------------------------------ whole experiments


def answer_of(
    loaded: LoadedScenario, out: Path, limits: tuple[float, float] = (1, 8), axis: str = "concurrency"
) -> Any:
    how = Search(Work(out, partial(local_executor, 1)), {"objectives": ["output_throughput"]}, 3)
    (objective,) = search(loaded, AXES[axis], limits, how).document["arms"]["k3"].values()
    return objective


def arms(draft_rate: float) -> dict[str, Any]:
    return {
        "plain": {},
        "k3": {
            "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
            "acceptance": {"kind": "iid", "rate": draft_rate},
        },
    }


def test_always_never_and_not_resolved(small: Load, tmp_path: Path) -> None:
    """Steps of constant time: 2.53 tokens for 13 ms against 1 for 10 ms pay; 1 never does."""
    assert answer_of(small(), tmp_path / "a")["status"] == "always"
    assert answer_of(small(arms=arms(0.0)), tmp_path / "n")["status"] == "never"
    omega = (1 - 0.3**4) / 0.7
    even = {"kind": "constant", "target_ms": 10, "draft_ms": (omega - 1) * 10 / 3 * 0.965}  # prefill is shared
    unclear = answer_of(small(arms=arms(0.3), cost_model=even), tmp_path / "u")
    assert unclear["status"] == "indeterminate"
    assert unclear["unresolved_at"]
    assert unclear["num_pairs"] == 10  # it tried


def test_capacity_first(small: Load, tmp_path: Path) -> None:
    """Sixty blocks of 16 tokens hold about eight requests of 100 tokens: more users only queue, and it still pays."""
    tight = {"num_gpu_blocks_override": 60, "max_model_len": 512}
    workload = {
        "arrivals": {"kind": "closed", "max_concurrency": 2},
        "prompt_tokens": {"kind": "fixed", "value": 60},
        "output_tokens": {"kind": "fixed", "value": 40},
        "num_requests": 120,
    }
    found = answer_of(small(engine=tight, workload=workload), tmp_path, (1, 32))
    assert (found["status"], found["capacity_reached_first"]) == ("always", True)
    assert 6 <= found["capacity_reached_from"] <= 16


@pytest.mark.parametrize("axis", ["context", "output_length", "k", "acceptance", "draft_time", "verify_time"])
def test_every_axis_can_be_searched(small: Load, tmp_path: Path, axis: str) -> None:
    limits = {"k": (1.0, 4.0), "acceptance": (0.5, 1.2), "draft_time": (1.0, 8.0), "verify_time": (0.9, 2.4)}
    if axis not in ("draft_time", "verify_time"):
        assert answer_of(small(), tmp_path, limits.get(axis, (16, 64)), axis)["status"] == "always"
        return
    long = {
        "arrivals": {"kind": "closed", "max_concurrency": 2},
        "prompt_tokens": {"kind": "fixed", "value": 8},
        "output_tokens": {"kind": "fixed", "value": 400},
        "num_requests": 24,
    }
    (crossing,) = answer_of(small(workload=long), tmp_path, limits[axis], axis)["crossings"]
    # 2.533 tokens for 10 + 3 ms pay up to 25.33 ms; 5 % for passes with a prompt and the ends of answers
    assert crossing["value"] == pytest.approx({"draft_time": 15.33 / 3, "verify_time": 2.233}[axis], rel=0.05)
    assert crossing["direction"] == "gain_to_loss"


def test_request_rates_are_tried_up_to_what_plain_can_carry(small: Load, tmp_path: Path) -> None:
    """Rates come from one busy run; an arm that cannot keep up is named, not left out in silence."""
    cost = {"kind": "linear", "base_ms": 5, "per_token_us": 400, "draft": {"base_ms": 0.1}}
    workload = {
        "arrivals": {"kind": "closed", "max_concurrency": 2},
        "prompt_tokens": {"kind": "fixed", "value": 8},
        "output_tokens": {"kind": "fixed", "value": 40},
        "num_requests": 400,
    }
    how = Search(Work(tmp_path, partial(local_executor, 1)), {"objectives": ["mean_tpot_ms"]}, 2)
    answer = search(small(cost_model=cost, workload=workload), AXES["request_rate"], None, how)
    found = answer.document["arms"]["k3"]["mean_tpot_ms"]
    # a token costs 0.4 ms: plain carries 1 / (48 * 0.4 ms) = 52 requests/s, three drafts at 70 % 2.53 / 4 of it
    assert 25 < found["saturates_at"] < 55
    assert found["baseline_saturates_at"] is None or found["baseline_saturates_at"] >= found["saturates_at"]
    assert found["crossings"][0]["value"] < found["saturates_at"]


def test_both_searches_of_all_questions(small: Load, tmp_path: Path) -> None:
    how = Search(Work(tmp_path, partial(local_executor, 1)), {"objectives": ["output_throughput", "mean_e2el_ms"]}, 2)
    batch, (closed, opened) = all_questions(small(), (1, 4), how)
    assert batch["k3"]["status"] == "always"
    assert set(closed.document["arms"]["k3"]) == {"output_throughput", "mean_e2el_ms"}
    assert set(opened.document["arms"]["k3"]) == {"mean_e2el_ms"}  # a throughput repeats the offered load


def test_wrong_axes_and_ranges(small: Load) -> None:
    with pytest.raises(ScenarioError, match="did you mean acceptance"):
        axis_of("acceptanc")
    with pytest.raises(ScenarioError, match="allowed: concurrency"):
        axis_of("zzz")
    for limits in ((0.0, 4.0), (4.0, 4.0), (4.0, 1.0), (1.0, math.inf)):
        with pytest.raises(ScenarioError, match="LOW < HIGH"):
            first_sweep(small(), AXES["concurrency"], limits, {})
    with pytest.raises(ScenarioError, match="whole numbers"):
        first_sweep(small(), AXES["k"], (3.1, 3.9), {})
    with pytest.raises(ScenarioError, match="no range is known"):
        first_sweep(small(), axis_of("engine.max_num_seqs"), None, {})
    two = {**arms(0.7), "k4": arms(0.7)["k3"]}
    with pytest.raises(ScenarioError, match="--arms, one of k3, k4"):
        first_sweep(small(arms=two), AXES["k"], (1, 4), {})
    with pytest.raises(ScenarioError, match="cost_per_gpu_hour_usd"):
        first_sweep(small(), AXES["concurrency"], (1, 4), {"breakeven": {"objectives": ["usd_per_mtok_output"]}})


def test_whole_axes_stay_within_their_range() -> None:
    assert spread(1.2, 3.7, True) == [2, 3]
    assert spread(1, 256, True) == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "timing.json"
    }


@pytest.mark.parametrize("stop_after", [5, 34])
def test_a_killed_search_goes_on_to_the_same_bytes(small: Load, tmp_path: Path, stop_after: int) -> None:
    """Killed in the first round, and in a later one, whose runs are not made again."""
    cost = {"kind": "linear", "base_ms": 5, "per_token_us": 400, "draft": {"base_ms": 0.25}}
    sweep = {"replicates": 2, "vary": {AXIS: [1, 3, 10, 32]}, "breakeven": {"max_replicates": 3}}
    loaded = small(cost_model=cost, sweep=sweep)
    how = partial(HowToRun, partial(local_executor, 1), refine)
    whole = run(loaded, tmp_path / "whole", how=how())
    assert len(load(whole).manifest["cells"]) > 4

    class KilledError(BaseException):
        pass

    made: list[int] = []

    def die(*_: object) -> None:
        made.append(1)
        if len(made) == stop_after:
            raise KilledError

    with pytest.raises(KilledError):
        run(loaded, tmp_path / "killed", how=how(), progress=die)
    (partial_folder,) = (tmp_path / "killed" / "small").glob(".*partial")
    resumed = run(loaded, tmp_path / "killed", how=how(resume=partial_folder), progress=lambda *_: made.append(1))
    assert digests(resumed) == digests(whole)
    assert len(made) == len(list((whole / "cells").glob("*/*/r*")))


def test_a_search_interrupted_among_added_points_is_taken_up_by_its_question(small: Load, tmp_path: Path) -> None:
    """Ctrl-C publishes the folder with the points added so far, which the question as asked does not have."""
    cost = {"kind": "linear", "base_ms": 5, "per_token_us": 400, "draft": {"base_ms": 0.25}}
    sweep = {"replicates": 2, "vary": {AXIS: [1, 3, 10, 32]}, "breakeven": {"max_replicates": 3}}
    loaded = small(cost_model=cost, sweep=sweep)
    how = partial(HowToRun, partial(local_executor, 1), refine)
    whole = run(loaded, tmp_path / "whole", how=how())

    def stop(done: int, total: int, label: str) -> None:
        if done == 34:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(loaded, tmp_path / "stopped", how=how(), progress=stop)
    found = find_unfinished(loaded, tmp_path / "stopped")
    assert found is not None
    assert len(load(found).manifest["cells"]) > 4
    assert digests(run(loaded, tmp_path / "stopped", how=how(resume=found))) == digests(whole)
