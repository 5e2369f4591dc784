"""Clients of a server: closed loops of so many users, and open loops at a request rate, by the metrics of every run."""

from pathlib import Path

from sim.experiment.task import measure_of
from sim.metrics.summary import measure_run, summary_row
from sim.scenario.build import simulate
from sim.scenario.schema import Scenario
from sim.validation.harness.base import ArmTimes, Recorded, mean


def loaded(scenario: Scenario, arm: str, recorded: Recorded | None) -> ArmTimes:
    """Run the scenario as it stands and measure in its window. `recorded` is not used: users send different texts."""
    del recorded
    row = summary_row(measure_run(simulate(scenario, arm, 0, Path()), measure_of(scenario)))
    return ArmTimes(
        tokens_per_s=mean(row, "output_throughput"),
        tpot_ms=mean(row, "mean_tpot_ms"),
        ttft_ms=mean(row, "mean_ttft_ms"),
        e2el_s=mean(row, "mean_e2el_ms") * 1e-3,
        running=mean(row, "mean_running"),
    )
