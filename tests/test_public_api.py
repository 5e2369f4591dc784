"""What `import sim` offers: names that exist, cost nothing until used, and are enough for a whole experiment."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sim

SCENARIO = {
    "hardware": "h100-sxm",
    "model": "llama-3.1-8b",
    "cost_model": {"kind": "constant", "target_ms": 10, "draft_ms": 1},
    "arms": {
        "plain": {},
        "k2": {
            "speculative_config": {"method": "eagle3", "num_speculative_tokens": 2},
            "acceptance": {"kind": "iid", "rate": 0.6},
        },
    },
    "workload": {"num_requests": 12, "arrivals": {"kind": "closed", "max_concurrency": 2}},
    "sweep": {"replicates": 2},
}


@pytest.mark.parametrize("name", sim.__all__)
def test_every_public_name_exists_and_says_what_it_is(name: str) -> None:
    assert getattr(sim, name).__doc__
    assert name in dir(sim)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        sim.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, sim; print([name for name in sys.modules if name.startswith('sim.')], 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_an_experiment_from_python(tmp_path: Path) -> None:
    loaded = sim.load_mapping(SCENARIO)
    record = sim.simulate(loaded.scenario, "k2", 0, loaded.base_dir)
    assert isinstance(record, sim.RunRecord)
    experiment = sim.load(sim.run(loaded, str(tmp_path), jobs=1))
    row = experiment.summary.query("arm == 'k2' and replicate == 0").iloc[0]
    requests = experiment.requests(row.cell_id, "k2")
    assert np.array_equal(requests["output_tokens"], record.requests.emitted_tokens)
    assert np.array_equal(requests["finish_s"], record.requests.finish_ns / 1e9)
    assert set(experiment.compare()["arm"]) == {"k2"}
    assert sim.write_dashboard(experiment.run_dir).is_file()
    assert "k2" in sim.summary_text(experiment.run_dir)


def test_errors_can_be_caught_by_their_public_names() -> None:
    with pytest.raises(sim.ScenarioError, match="did you mean arms"):
        sim.load_mapping({**SCENARIO, "arm": {}})
    loaded = sim.load_mapping({**SCENARIO, "model": "llama-3.1-405b"})
    with pytest.raises(sim.CapacityError, match="405B on 1 x H100"):
        sim.simulate(loaded.scenario, "plain", 0, loaded.base_dir)
    with pytest.raises(sim.ResultsError):
        sim.load("no/such/folder")
