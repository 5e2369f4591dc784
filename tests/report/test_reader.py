import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.errors import ResultsError
from sim.report.crossings import answer, entry, main_objective, objectives, stops, together
from sim.report.figures.doubts import warnings_of
from sim.report.figures.verdict import headline
from sim.report.reader import load_results

Make = Callable[..., Path]


def test_levels_and_ratios_are_those_of_the_tables(sweep_dir: Path) -> None:
    results = load_results(sweep_dir)
    cell = results.cells[6]
    values = results.summary.query("arm == 'eagle3-k3' and cell_id == @cell.cell_id")["output_throughput"]
    level = results.level(cell, "eagle3-k3", "output_throughput")
    assert level is not None
    assert level.n == 5
    assert level.mean == pytest.approx(values.mean())
    assert level.high is not None
    half = 2.7764451 * values.std(ddof=1) / math.sqrt(5)  # t of 4 degrees of freedom, any table
    assert level.high - level.mean == pytest.approx(half, rel=1e-6)
    row = results.compare.query("arm == 'eagle3-k3' and metric == 'mean_tpot_ms' and cell_id == @cell.cell_id").iloc[0]
    ratio = results.ratio(cell, "eagle3-k3", "mean_tpot_ms")
    assert ratio is not None
    assert (ratio.speedup, ratio.low, ratio.high, ratio.n) == (row.speedup, row.ci_low, row.ci_high, 5)


def test_baseline_first_and_cells_along_the_axis(sweep_dir: Path) -> None:
    results = load_results(sweep_dir)
    assert results.arms == ("plain", "eagle3-k3", "eagle3-k7")
    assert [cell.x for cell in results.cells] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert results.axis is not None
    assert results.axis.say(64) == "64 concurrent requests"


def test_failed_cell_is_a_gap_with_its_reason(make: Make) -> None:
    results = load_results(make(loads=(1, 8, 64), failed={8: "does not fit"}))
    lost = results.cells[1]
    assert (lost.x, lost.done, lost.reason) == (8, False, "does not fit")
    assert results.ratio(lost, "eagle3-k3", "output_throughput") is None
    assert results.level(lost, "plain", "output_throughput") is None


def test_partly_failed_cell_names_the_runs(make: Make) -> None:
    folder = make(loads=(1, 8))
    manifest = json.loads((folder / "manifest.json").read_text())
    failures = [{"arm": "eagle3-k7", "replicate": r, "reason": "out of memory"} for r in (0, 1)]
    manifest["cells"][1] |= {"state": "partial", "failures": failures}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    cell = load_results(folder).cells[1]
    assert cell.done
    assert cell.reason == "eagle3-k7 run 0, eagle3-k7 run 1: out of memory"


def test_single_operating_point_has_no_axis(make: Make) -> None:
    results = load_results(make(loads=(64,), key=None))
    assert results.axis is None
    assert len(results.cells) == 1


def test_two_varied_keys_give_slices_with_their_own_break_even(make: Make) -> None:
    folder = make(loads=(1, 8, 64))
    for name in ("summary.csv", "compare.csv"):
        head, *rows = (folder / name).read_text().splitlines()
        both = [f"{row},2" for row in rows] + [f"X{row.replace('00000000000', 'f0000000000')},4" for row in rows]
        both = [row.removeprefix("X") for row in both]
        (folder / name).write_text("\n".join([f"{head},vary.engine.tensor_parallel_size", *both]) + "\n")
    document = json.loads((folder / "breakeven.json").read_text())
    arms = document.pop("arms")
    never = {arm: {"output_throughput": {"status": "never", "range_tested": [1, 64], "crossings": []}} for arm in arms}
    key = "engine.tensor_parallel_size"
    document |= {"arms": {}, "slices": [{"vary": {key: 2}, "arms": arms}, {"vary": {key: 4}, "arms": never}]}
    (folder / "breakeven.json").write_text(json.dumps(document))
    results = load_results(folder)
    assert [part.label for part in results.slices] == ["tensor_parallel_size = 2", "tensor_parallel_size = 4"]
    assert [len(part.cells) for part in results.slices] == [3, 3]
    found = entry(results, "eagle3-k3", "output_throughput", results.slices[1])
    assert found is not None
    assert found["status"] == "never"
    assert objectives(results) == ["output_throughput", "mean_tpot_ms"]


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("manifest.json", "manifest.json is missing"),
        ("summary.csv", "unfinished"),
        ("scenario.resolved.yaml", "cannot be"),
    ],
)
def test_incomplete_folder_is_refused(make: Make, remove: str, message: str) -> None:
    folder = make(loads=(1,), replicates=1)
    (folder / remove).unlink()
    with pytest.raises(ResultsError, match=message):
        load_results(folder)


def test_missing_folder_and_damaged_file(tmp_path: Path, make: Make) -> None:
    with pytest.raises(ResultsError, match="no such folder"):
        load_results(tmp_path / "nowhere")
    folder = make(loads=(1,), replicates=1)
    (folder / "breakeven.json").write_text("{")
    with pytest.raises(ResultsError, match=r"breakeven\.json: cannot be read"):
        load_results(folder)


def test_open_loop_is_judged_by_what_differs(make: Make) -> None:
    folder = make(key="workload.arrivals.request_rate")
    document = json.loads((folder / "breakeven.json").read_text())
    for arm in document["arms"].values():
        arm["output_throughput"] = {"status": "indeterminate", "reason": "equal arrival rate", "crossings": []}
    (folder / "breakeven.json").write_text(json.dumps(document))
    results = load_results(folder)
    assert main_objective(results) == "mean_tpot_ms"
    assert headline(results).startswith("eagle3-k3 pays at every tested load")
    assert (
        "eagle3-k3 and eagle3-k7: break-even of output throughput is not resolved: equal arrival rate"
        in warnings_of(results)
    )


def test_without_break_even_the_loads_speak(make: Make) -> None:
    folder = make(loads=(1, 8, 256))
    (folder / "breakeven.json").unlink()
    assert headline(load_results(folder)) == (
        "eagle3-k3 improves output throughput at every tested load; eagle3-k7 improves output throughput up to "
        "8 concurrent requests and worsens output throughput from 256 concurrent requests on."
    )


def test_break_even_in_words(sweep_dir: Path) -> None:
    axis = load_results(sweep_dir).axis
    assert axis is not None
    crossing = {"value": 83.2, "bracket": [64, 128], "direction": "gain_to_loss"}
    once = {"status": "crosses", "crossings": [crossing], "range_tested": [1, 256]}
    assert answer(once, axis) == "pays up to about 83 concurrent requests"
    assert stops(once, axis) == "stops paying between 64 and 128 concurrent requests"
    again = {"value": 4.0, "direction": "loss_to_gain", "bracket": [2, 8]}
    assert answer(once | {"crossings": [again]}, axis) == "pays only from about 4.0 concurrent requests on"
    both = once | {"crossings": [crossing, again | {"value": 200}]}
    assert answer(both, axis) == (
        "pays up to about 83 concurrent requests, pays again from about 200 concurrent requests on"
    )
    never = {"status": "never", "crossings": [], "range_tested": [1, 256]}
    assert answer(never, axis) == "does not pay at any tested load (1 to 256 concurrent requests)"
    unknown = never | {"status": "indeterminate"}
    assert "not resolved" in answer(unknown, axis)
    assert together([("a", "pays here"), ("b", "pays here"), ("c", "is slow")]) == "a and b pay here; c is slow"
