import numpy as np
import pytest
from scipy import stats

from sim.experiment.break_even import Question, arms_document, numeric_axis, slices
from sim.experiment.compare import compare_rows, runs_by_arm
from sim.metrics.summary import Row

AXIS = "workload.arrivals.max_concurrency"


def row(cell: str, arm: str, rep: int, throughput: float | None, **more: object) -> Row:
    base: dict[str, object] = {
        "cell_id": cell, "arm": arm, "replicate": rep, "output_throughput": throughput, "mean_running": 4.0,
        "mean_waiting": 0.0, "kv_usage_p99": 0.2, "preemptions": 0, "saturated": False, "max_concurrency": 4,
        "mean_tpot_ms": 1000 / throughput if throughput else None,
    }  # fmt: skip
    return base | more  # type: ignore[return-value]


def sweep(gains: list[float], **more: object) -> list[Row]:
    rng = np.random.default_rng(0)
    rows = []
    for i, gain in enumerate(gains):
        for rep in range(5):
            level = 100.0 * rng.lognormal(0, 0.2)  # replicates differ much, pairs little
            rows.append(row(f"c{i}", "plain", rep, level))
            rows.append(row(f"c{i}", "fast", rep, level * gain * rng.lognormal(0, 0.002), **more))
    return rows


QUESTION = Question(AXIS, ("output_throughput", "mean_tpot_ms"), 0.95, "plain")


def answers(rows: list[Row], count: int) -> dict[str, dict[str, object]]:
    cells = [(f"c{i}", {AXIS: 2**i}) for i in range(count)]
    ((_, points),) = slices(cells, AXIS)
    document = arms_document(runs_by_arm(rows), points, ["plain", "fast"], QUESTION, {})
    return document["fast"]  # type: ignore[return-value]


def test_pairs_are_by_replicate_and_times_are_turned_round() -> None:
    rows = sweep([1.5])
    table = compare_rows(runs_by_arm(rows), [("c0", {AXIS: 1})], ["plain", "fast"], "plain", 0.95)
    by_metric = {line["metric"]: line for line in table}
    assert set(by_metric) == {"output_throughput", "mean_tpot_ms"}
    fast = [r["output_throughput"] for r in rows if r["arm"] == "fast"]
    plain = [r["output_throughput"] for r in rows if r["arm"] == "plain"]
    logs = np.log(np.array(fast, float) / np.array(plain, float))
    low, high = np.exp(stats.t.interval(0.95, 4, loc=logs.mean(), scale=stats.sem(logs)))
    line = by_metric["output_throughput"]
    assert line["speedup"] == pytest.approx(np.exp(logs.mean()))
    assert (line["ci_low"], line["ci_high"]) == (pytest.approx(low), pytest.approx(high))
    assert line["verdict"] == by_metric["mean_tpot_ms"]["verdict"] == "better"
    assert by_metric["mean_tpot_ms"]["speedup"] == pytest.approx(line["speedup"])
    assert line["num_pairs"] == 5
    assert line[f"vary.{AXIS}"] == 1


def test_missing_replicates_are_left_out_of_pairs_and_zero_gives_no_ratio() -> None:
    rows = [row("c0", "plain", 0, 10.0), row("c0", "plain", 1, 10.0), row("c0", "fast", 1, 20.0)]
    (line, _) = compare_rows(runs_by_arm(rows), [("c0", {})], ["fast"], "plain", 0.95)
    assert (line["speedup"], line["num_pairs"], line["verdict"]) == (pytest.approx(2.0), 1, "not resolved")
    zero = runs_by_arm([row("c0", "plain", 0, 10.0), row("c0", "fast", 0, 0.0)])
    (line,) = compare_rows(zero, [("c0", {})], ["fast"], "plain", 0.95)
    assert (line["speedup"], line["verdict"]) == (None, "not resolved")


def test_break_even_of_a_falling_speedup() -> None:
    answer = answers(sweep([1.6, 1.3, 1.1, 0.9, 0.7]), 5)["output_throughput"]
    assert answer["status"] == "crosses"
    (crossing,) = answer["crossings"]  # type: ignore[misc]
    assert crossing["bracket"] == [4.0, 8.0]
    assert crossing["direction"] == "gain_to_loss"
    assert (answer["at"], answer["max_gain"]) == (1.0, pytest.approx(1.6, rel=0.01))
    assert answer["range_tested"] == [1.0, 16.0]
    assert crossing["model_band_low"] is None  # no closed form was given


def test_both_objectives_agree_when_one_is_the_inverse_of_the_other() -> None:
    found = answers(sweep([1.6, 1.3, 1.1, 0.9, 0.7]), 5)
    values = [found[name]["crossings"][0]["value"] for name in ("output_throughput", "mean_tpot_ms")]  # type: ignore[index]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@pytest.mark.parametrize(("gains", "status"), [([1.5, 1.4, 1.3], "always"), ([0.9, 0.8, 0.7], "never")])
def test_always_and_never(gains: list[float], status: str) -> None:
    assert answers(sweep(gains), 3)["output_throughput"]["status"] == status


def test_capacity_reached_before_any_crossing_is_said() -> None:
    rows = sweep([1.5, 1.4, 1.3])
    full = [r | {"mean_waiting": 3.0, "kv_usage_p99": 0.97} if r["cell_id"] == "c2" else r for r in rows]
    answer = answers(full, 3)["output_throughput"]
    assert (answer["capacity_reached_first"], answer["capacity_reached_from"]) == (True, 4.0)
    assert answers(rows, 3)["output_throughput"]["capacity_reached_first"] is False


def test_saturated_points_are_left_out_of_latencies_only() -> None:
    rows = [r | {"saturated": r["cell_id"] == "c2"} for r in sweep([1.5, 1.4, 0.8])]
    found = answers(rows, 3)
    assert found["mean_tpot_ms"]["left_out"] == [4.0]
    assert found["mean_tpot_ms"]["status"] == "always"
    assert found["output_throughput"]["left_out"] == []


def test_throughput_at_equal_arrival_rate_is_no_evidence() -> None:
    rows = [r | {"max_concurrency": None} for r in sweep([1.05, 1.02, 0.97])]
    found = answers(rows, 3)
    assert found["output_throughput"]["status"] == "indeterminate"
    assert "offered load" in str(found["output_throughput"]["reason"])
    assert found["mean_tpot_ms"]["status"] == "crosses"
    table = compare_rows(runs_by_arm(rows), [("c0", {})], ["fast"], "plain", 0.95)
    assert [line["verdict"] for line in table] == ["not resolved", "better"]
    full = [r | {"saturated": True} for r in rows]
    assert compare_rows(runs_by_arm(full), [("c0", {})], ["fast"], "plain", 0.95)[0]["verdict"] == "better"


def test_one_point_is_no_curve() -> None:
    answer = answers(sweep([1.5]), 1)["output_throughput"]
    assert answer["status"] == "indeterminate"
    assert "fewer than two" in str(answer["reason"])


def test_axes_and_slices() -> None:
    cells = [(f"{a}{b}", {AXIS: a, "k": b}) for a in (4, 1) for b in ("x", "y")]
    groups = slices(cells, AXIS)
    assert [(others, [p.x for p in points]) for others, points in groups] == [
        ({"k": "x"}, [1.0, 4.0]), ({"k": "y"}, [1.0, 4.0]),
    ]  # fmt: skip
    assert numeric_axis(cells, AXIS)
    assert not numeric_axis(cells, "k")
    assert not numeric_axis(cells[:1], AXIS)
