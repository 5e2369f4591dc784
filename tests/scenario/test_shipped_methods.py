"""scenarios/methods: one per speculation method, and one with all of them."""

from pathlib import Path

import pytest

from sim.experiment.run import run
from sim.scenario.build import simulate
from sim.scenario.files import shipped_names
from sim.scenario.lint import lint
from sim.scenario.load import load_scenario
from sim.speculation.base import SPECULATION

COMPARISON = "methods/compare"
NAMES = [name for name in shipped_names() if name.startswith("methods/")]
#: Arms that may be missing in the comparison: they need another target.
ELSEWHERE = {"Mtp"}


def methods_of(name: str) -> set[str]:
    arms = load_scenario(name).scenario.arms.values()
    return {type(arm.speculative_config).__name__ for arm in arms if arm.speculates}


@pytest.mark.parametrize("name", NAMES)
def test_loads_without_a_note_and_fits_its_gpu(name: str) -> None:
    loaded = load_scenario(name)
    assert loaded.notes == ()
    assert lint(loaded).problems == ()


def test_every_method_has_a_scenario_and_an_arm_in_the_comparison() -> None:
    drafting = {spec.__name__ for spec in SPECULATION.members().values()} - {"Plain"}
    assert drafting == set().union(*(methods_of(name) for name in NAMES if name != COMPARISON))
    assert drafting - ELSEWHERE == methods_of(COMPARISON)


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_serves_all_requests_to_their_end(name: str) -> None:
    loaded = load_scenario(name, overrides=["workload.num_requests=6", "workload.arrivals.max_concurrency=2"])
    for arm in loaded.scenario.arms:
        requests = simulate(loaded.scenario, arm, 0, loaded.base_dir).requests
        assert requests.emitted_tokens.tolist() == requests.output_tokens.tolist()
        assert (requests.finish_ns > 0).all()


def test_the_cheapest_runs(tmp_path: Path) -> None:
    few = ["workload.num_requests=8", "sweep.vary={workload.arrivals.max_concurrency: [1, 4]}"]
    folder = run(load_scenario("methods/layerskip", overrides=few), tmp_path, jobs=1)
    assert (folder / "summary.csv").read_text(encoding="utf-8").count("layerskip-k3") >= 2
