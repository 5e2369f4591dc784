"""One run as a task: what is bound, and how often."""

from collections.abc import Callable
from pathlib import Path

import pytest

import sim.scenario.build
from sim.experiment import task as tasks
from sim.experiment.task import Task, run_cell_arm
from sim.scenario.build import set_up
from sim.scenario.cells import cell_scenarios
from sim.scenario.load import LoadedScenario


def test_an_arm_is_bound_once_even_where_files_are_kept(
    small: Callable[..., LoadedScenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []

    def counted(*arguments: object) -> object:
        bound.append(arguments[1])
        return set_up(*arguments)  # type: ignore[arg-type]

    for module in (tasks, sim.scenario.build):
        monkeypatch.setattr(module, "set_up", counted)
    cell = cell_scenarios(small().scenario)[0]
    outcome = run_cell_arm(Task(cell.scenario.model_dump_json(), cell.cell_id, dict(cell.vary), "k3", 0, str(Path())))
    assert outcome.row is not None, outcome.error
    assert "result.json" in outcome.files
    assert bound == ["k3"]
