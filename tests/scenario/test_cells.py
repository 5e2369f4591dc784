import pytest

from sim.errors import ScenarioError
from sim.scenario.cells import cell_scenarios, num_cells
from sim.scenario.dump import dump_scenario
from sim.scenario.load import load_mapping

BASE = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "arms": {"plain": {}}, "engine": {"max_num_seqs": 64}}


def scenario(**more: object):  # type: ignore[no-untyped-def]
    return load_mapping({**BASE, **more}).scenario


def test_cells_are_the_grid_in_order() -> None:
    grid = scenario(sweep={"vary": {"engine.block_size": [16, 32], "workload.arrivals.max_concurrency": [1, 4, 9]}})
    cells = cell_scenarios(grid)
    assert num_cells(grid) == len(cells) == 6
    assert [tuple(cell.vary.values()) for cell in cells] == [(16, 1), (16, 4), (16, 9), (32, 1), (32, 4), (32, 9)]
    assert [cell.scenario.engine.block_size for cell in cells] == [16, 16, 16, 32, 32, 32]
    assert [cell.scenario.workload.arrivals.max_concurrency for cell in cells] == [1, 4, 9] * 2
    assert all(cell.scenario.sweep.vary == {} for cell in cells)
    assert len({cell.cell_id for cell in cells}) == 6
    assert all(len(cell.cell_id) == 12 and int(cell.cell_id, 16) >= 0 for cell in cells)


def test_nothing_varied_is_one_cell() -> None:
    (cell,) = cell_scenarios(scenario(sweep={"vary": {}}))
    assert cell.vary == {}


def test_a_cell_is_the_same_however_it_is_reached() -> None:
    """So that a sweep can be resumed, extended and merged."""
    wide = cell_scenarios(scenario(sweep={"vary": {"workload.arrivals.max_concurrency": [4, 8]}, "replicates": 2}))
    single = scenario(workload={"arrivals": {"kind": "closed", "max_concurrency": "8"}}, seed=3, name="other")
    assert cell_scenarios(single)[0].cell_id == wide[1].cell_id


def test_cells_are_scenarios_that_load_again() -> None:
    from sim.scenario.yaml_reader import read_yaml

    for cell in cell_scenarios(scenario(sweep={"vary": {"model": ["llama-3.1-8b", "qwen2.5-7b"]}})):
        root, _ = read_yaml(dump_scenario(cell.scenario).encode(), "s.yaml")
        again = load_mapping(root.plain())
        assert again.scenario == cell.scenario
        assert again.notes == ()


def test_whole_mappings_can_be_varied() -> None:
    arrivals = [{"kind": "closed", "max_concurrency": 4}, {"kind": "poisson", "request_rate": 3}]
    cells = cell_scenarios(scenario(sweep={"vary": {"workload.arrivals": arrivals}}))
    assert [cell.scenario.workload.arrivals.kind for cell in cells] == ["closed", "poisson"]


def test_huge_grids_are_refused_before_they_are_made() -> None:
    values = list(range(1, 200))
    vary = {"engine.max_num_seqs": values, "engine.block_size": values, "workload.arrivals.max_concurrency": values}
    with pytest.raises(ScenarioError, match="7880599 cells; allowed: at most 1000000"):
        scenario(sweep={"vary": vary})


def test_combinations_that_contradict_one_another_are_found() -> None:
    vary = {"engine.max_num_seqs": [16, 100], "engine.max_num_batched_tokens": [64, 100]}
    with pytest.raises(ScenarioError, match=r"at engine.max_num_seqs = 100, engine.max_num_batched_tokens = 64: "):
        scenario(sweep={"vary": vary})
