"""Sweeps: wall time of 100 cells x 2 arms x 1,000 requests, what a cell costs beside its simulation, and two workers.

Targets: the sweep within 60 s on two cores, under 20 ms of overhead per cell, two workers at least 1.8 times one.
"""

import shutil
import tempfile
import time
from pathlib import Path

from sim.experiment.executor import local_executor, usable_cpus
from sim.experiment.plan import make_plan
from sim.experiment.run import run
from sim.experiment.store import RunFolder
from sim.experiment.task import run_cell_arm
from sim.scenario.build import simulate
from sim.scenario.cells import cell_scenarios
from sim.scenario.load import LoadedScenario, load_scenario
from sim.scenario.schema import Scenario

CELLS = 100


def scenario(num_requests: int, cells: int) -> LoadedScenario:
    axis = "workload.arrivals.max_concurrency"
    settings = [f"workload.num_requests={num_requests}", f'sweep.vary.{axis}="8:{7 + cells}"', "sweep.replicates=1"]
    loaded = load_scenario("quickstart", settings)
    arms = {name: loaded.scenario.arms[name] for name in list(loaded.scenario.arms)[:2]}
    return LoadedScenario(loaded.scenario.model_copy(update={"arms": arms}), loaded.base_dir, "", ())


def sweep_seconds(jobs: int) -> float:
    folder = Path(tempfile.mkdtemp())
    start = time.perf_counter()
    run(scenario(1000, CELLS), folder, jobs=jobs)
    seconds = time.perf_counter() - start
    shutil.rmtree(folder)
    return seconds


def overhead_ms() -> float:
    """CPU time of a cell of two arms beside its simulations: all of a sweep of tiny cells, less the simulations."""
    loaded, folder = scenario(2, CELLS), Path(tempfile.mkdtemp())
    cells: list[Scenario] = [cell.scenario for cell in cell_scenarios(loaded.scenario)]
    start = time.process_time()
    for cell in cells:
        for arm in cell.arms:
            simulate(cell, arm, 0, loaded.base_dir)
    simulated = time.process_time() - start
    start = time.process_time()
    run(loaded, folder, jobs=1)
    total = time.process_time() - start
    shutil.rmtree(folder)
    return (total - simulated) / CELLS * 1e3


def speedup_of_two() -> float:
    """Two warm workers against one, on the same tasks; start-up apart."""
    folder = RunFolder(Path(tempfile.mkdtemp()), "bench", "00000000")
    loaded = scenario(1000, 40)
    tasks = make_plan(loaded.scenario, loaded.base_dir, folder).tasks
    seconds = []
    for jobs in (1, 2):
        with local_executor(jobs) as executor:
            list(executor.run(run_cell_arm, tasks[: 2 * jobs]))
            start = time.perf_counter()
            list(executor.run(run_cell_arm, tasks))
            seconds.append(time.perf_counter() - start)
    folder.discard()
    return seconds[0] / seconds[1]


def main() -> None:
    cores = usable_cpus()
    seconds = sweep_seconds(min(2, cores))
    print(f"{CELLS} cells x 2 arms x 1,000 requests on {min(2, cores)} cores: {seconds:.1f} s (target 60)")
    print(f"overhead per cell of two arms: {overhead_ms():.1f} ms of CPU (target 20)")
    if cores > 1:
        print(f"two workers against one: {speedup_of_two():.2f} x (target 1.8)")


if __name__ == "__main__":
    main()
