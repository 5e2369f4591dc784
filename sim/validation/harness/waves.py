"""Closed loops as InferenceMAX runs them: all users at once, ten requests each, every request counted.

`benchmark_serving.py --dataset-name random --random-range-ratio 0.8 --num-prompts $((CONC * 10)) --request-rate inf
--ignore-eos` (README of InferenceMAX): lengths uniform between 0.8 and 1 times the nominal ones, no warm-up left out.
Only four requests per user are simulated: the first wave, which meets all prompts at once, and the last one, which
meets fewer and fewer, count once each, those between for the eight others.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.errors import ScenarioError
from sim.metrics.latency import latencies
from sim.metrics.record import Status
from sim.scenario.build import simulate
from sim.scenario.schema import Scenario

#: Requests of a user there and here.
WAVES, SIMULATED = 10, 4
_SHORTEST = 0.8
#: Its shapes, input and output tokens; others are taken as equal requests.
SHAPES = ((1024, 1024), (1024, 8192), (8192, 1024))


class WaveTimes(NamedTuple):
    """Means over all requests."""

    tpot_ms: float
    ttft_ms: float


def wave_workload(concurrency: int, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """The `workload` of such a run."""
    shortest = _SHORTEST if (input_tokens, output_tokens) in SHAPES else 1.0
    return {
        "arrivals": {"kind": "closed", "max_concurrency": concurrency},
        "prompt_tokens": _range(input_tokens, shortest),
        "output_tokens": _range(output_tokens, shortest),
        "num_requests": SIMULATED * concurrency,
    }


def _range(nominal: int, shortest: float) -> dict[str, object]:
    return {"kind": "uniform", "min": max(1, round(shortest * nominal)), "max": nominal}


def run_waves(scenario: Scenario, arm: str) -> WaveTimes:
    """Simulate and weigh.

    Raises:
        ScenarioError: requests were rejected.
    """
    record = simulate(scenario, arm, 0, Path())
    if not bool((record.requests.status == Status.FINISHED).all()):
        raise ScenarioError("requests were rejected: they do not fit the simulated server")
    times, users = latencies(record), len(record.requests.arrival_ns) // SIMULATED
    weights = np.repeat([1.0, (WAVES - 2) / (SIMULATED - 2), 1.0], [users, (SIMULATED - 2) * users, users])
    return WaveTimes(*(float(np.average(column, weights=weights)) for column in (times.tpot, times.ttft)))
