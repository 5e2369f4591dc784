"""The one published sweep of request rates with and without speculation: vLLM blog of October 2024, vLLM V0.

Acceptance is solved at 1 QPS, and the cost per draft of engine `vllm-0.6` was fitted at 4 QPS; 2, 8 and 10 QPS are
predicted. The design asks for the crossing within a factor 1.3 and right signs at both ends. Single speed-ups: 12 %.
The blog does not state its requests; vLLM's own test of this pair of models sends 200, and the mean latency of 200
whose lengths vary by 1.08 has a standard error of 8 %, most of which the arms share; what they do not grows with load.
"""

from pathlib import Path

import numpy as np
import pytest

from sim.theory.crossings import crossings
from sim.validation.cases import build_cases
from sim.validation.published import read_published
from sim.validation.speedup import Runner


@pytest.mark.slow
def test_where_speculation_stops_paying_as_the_request_rate_rises(shared_data: Path) -> None:
    rows = [row for row in read_published(shared_data) if row.case_id.startswith("VLLMBLOG")]
    cases = sorted(build_cases(rows, shared_data)[0], key=lambda case: case.load)
    runner, measured = Runner(), [case.row.measured_speedup or 0.0 for case in cases]
    tokens = runner.solved(cases[0], measured[0])
    ours = [runner.speedup(case, tokens) for case in cases]
    loads = [case.load for case in cases]
    print(f"\ntokens a step {tokens:.2f}")
    for load, found, truth in zip(loads, ours, measured, strict=True):
        print(f"{load:4g} QPS: {found:.3f}, measured {truth:.3f}")
    assert loads == [1, 2, 4, 8, 10]
    assert ours == pytest.approx(measured, rel=0.12)
    ends = [crossings(loads, np.log(curve).tolist())[0].value for curve in (ours, measured)]
    assert 1 / 1.3 < ends[0] / ends[1] < 1.3
    assert ours[0] > 1 > ours[-1]
