"""Searches get the same rows as `run` writes, and every run is made once."""

from collections.abc import Callable
from pathlib import Path

from sim.experiment.evaluate import Evaluator
from sim.experiment.executor import Serial
from sim.experiment.results import load
from sim.experiment.run import run
from sim.scenario.cells import cell_scenarios
from sim.scenario.load import LoadedScenario

Load = Callable[..., LoadedScenario]


def test_rows_are_those_of_a_run_and_are_made_once(small: Load, tmp_path: Path) -> None:
    loaded = small()
    scenario = loaded.scenario
    evaluator = Evaluator(Serial(), loaded.base_dir)
    cells = cell_scenarios(scenario)
    arms = list(scenario.arms)
    first = evaluator.runs(cells, arms, [0])
    assert evaluator.num_runs == len(cells) * len(arms)
    again = evaluator.runs(cells, arms, [0, 1])
    assert evaluator.num_runs == 2 * len(cells) * len(arms)
    written = load(run(loaded, tmp_path, replicates=2, jobs=1)).document()["summary"]
    for row in written:
        assert again[row["cell_id"], row["arm"]][row["replicate"]]["output_throughput"] == row["output_throughput"]
    assert all(again[key][0] == rows[0] for key, rows in first.items())
    assert not list(tmp_path.glob("cells"))
