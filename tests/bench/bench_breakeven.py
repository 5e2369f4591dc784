"""Break-even over concurrency for the quickstart with 5 replicates: wall time, and where it goes.

Target: at most 30 s on two quiet cores. CPU seconds tell more on a busy machine: half of them is what two cores need.
"""

import json
import resource
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from sim.experiment.axes import AXES
from sim.experiment.executor import local_executor, usable_cpus
from sim.experiment.questions import Search, search
from sim.experiment.rounds import Work
from sim.scenario.load import load_scenario


def cpu_seconds() -> float:
    """CPU time of this process and of the workers that have ended."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main() -> None:
    cores = min(2, usable_cpus())
    folder = Path(tempfile.mkdtemp())
    wall, cpu = time.perf_counter(), cpu_seconds()
    answer = search(
        load_scenario("quickstart"),
        AXES["concurrency"],
        None,
        Search(Work(folder, partial(local_executor, cores)), {}, 5),
    )
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    runs = json.loads((answer.run_dir / "timing.json").read_text())["runs"]
    simulated = sum(run["wall_s"] for run in runs)
    print(f"break-even over concurrency, quickstart: {wall:.1f} s on {cores} cores (target 30), {cpu:.1f} s of CPU")
    print(f"{len(runs)} runs, {simulated:.1f} s in them, {simulated / len(runs) * 1e3:.0f} ms each")
    for arm, objectives in answer.document["arms"].items():
        for name, found in objectives.items():
            places = ", ".join(f"{each['value']:.0f}" for each in found["crossings"])
            print(f"  {arm} {name}: {found['status']} {places}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
