"""Two recorded runs of a real server (vLLM 0.19, plain decode, overloaded) replayed with their own limits and blocks.

Nothing is tuned to them: kernel parameters come from the GPU profiles, the host time is the default. `make reality`
prints the table. The tolerances are the targets of the validation pages; one overloaded run with preemptions is one
sample path: arrivals moved by 5 ms change its means by 0.3 %, and its RMS of running requests is 4.2 to 5.1 %.
"""

from pathlib import Path

import numpy as np
import pytest

from sim.validation.recorded_runs import RecordedRun, recorded_runs


@pytest.fixture(scope="module")
def runs(shared_data: Path) -> list[RecordedRun]:
    found, not_run = recorded_runs(shared_data)
    assert not_run == []
    assert [run.name for run in found] == ["rtx4090_llama-3.1-8b", "rtxpro6000_llama-3.1-8b"]
    return found


@pytest.mark.parametrize(("statistic", "tolerance"), [("mean", 2.0), ("P99", 5.0)])
def test_latencies_of_recorded_servers(runs: list[RecordedRun], statistic: str, tolerance: float) -> None:
    scores = [score for run in runs for score in run.scores if score.quantity.startswith(statistic)]
    for score in scores:
        print(f"{score.name:26s} {score.quantity:10s} measured {score.measured:10.2f}  {score.error:+.1f} %")
    assert len(scores) == 6
    assert max(abs(score.error) for score in scores) <= tolerance


def test_running_and_waiting_of_recorded_servers(runs: list[RecordedRun]) -> None:
    """Per cent of the range that was recorded; KV use is recorded on the RTX 4090 alone."""
    found = {(run.name[:7], one.what): one.rms for run in runs for one in run.series}
    for name, rms in found.items():
        print(*name, f"{rms:.1f} %")
    assert len(found) == 5
    assert max(found.values()) <= 5.0


def test_preemptions_only_where_blocks_ran_out(runs: list[RecordedRun]) -> None:
    preempted = np.array([run.preemptions for run in runs])
    assert preempted[0] > 100
    assert preempted[1] == 0
