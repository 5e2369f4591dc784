"""specsim: does speculative decoding pay, up to which batch size, and with which K?

The public names of the project; each is imported when it is first used, so that `import sim` costs nothing:

    import sim

    loaded = sim.load_scenario("quickstart", ["sweep.replicates=2"])
    run_dir = sim.run(loaded, "results", jobs=1)
    print(sim.load(run_dir).compare())
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.errors import CapacityError, InvariantError, ResultsError, ScenarioError, SimError
    from sim.experiment.results import Experiment, load
    from sim.experiment.run import run
    from sim.metrics.record import RunRecord
    from sim.report.dashboard import write_dashboard
    from sim.report.terminal import summary_text
    from sim.scenario.build import simulate
    from sim.scenario.load import LoadedScenario, load_mapping, load_scenario
    from sim.scenario.schema import Scenario

__version__ = "0.1.0"

#: module -> the public names it defines
_HOMES = {
    "sim.errors": ("CapacityError", "InvariantError", "ResultsError", "ScenarioError", "SimError"),
    "sim.experiment.results": ("Experiment", "load"),
    "sim.experiment.run": ("run",),
    "sim.metrics.record": ("RunRecord",),
    "sim.report.dashboard": ("write_dashboard",),
    "sim.report.terminal": ("summary_text",),
    "sim.scenario.build": ("simulate",),
    "sim.scenario.load": ("LoadedScenario", "load_mapping", "load_scenario"),
    "sim.scenario.schema": ("Scenario",),
}

__all__ = [
    "CapacityError",
    "Experiment",
    "InvariantError",
    "LoadedScenario",
    "ResultsError",
    "RunRecord",
    "Scenario",
    "ScenarioError",
    "SimError",
    "load",
    "load_mapping",
    "load_scenario",
    "run",
    "simulate",
    "summary_text",
    "write_dashboard",
]


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'sim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
