"""Closed loops as load tests run them: all users at once, ten requests each, every request counted.

InferenceMAX, now InferenceX: `benchmark_serving.py --dataset-name random --random-range-ratio 0.8 --num-prompts
$((CONC * 10)) --request-rate inf --ignore-eos` (`benchmarks/benchmark_lib.sh`): lengths uniform between 0.8 and 1 times
the nominal ones; means over all requests, the first burst included (later versions warm up with 2 x CONC requests, all
done before it begins).

Other shapes are taken as those of `aiconfigurator eval` (`eval/benchmarks/genai_perf_runner.py`): equal lengths, ten
requests a user too. Its servers have `max_batch_size` slots, and in the dump one request more than that is under way:
TTFT rises with the output length by 1/c of a request's whole time, at every c up to 32, tp and prompt length.

Of long outputs only four requests per user are simulated: the first wave, which meets all prompts at once, and the last
one, which meets fewer and fewer, count once each, those between for the eight others.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.errors import ScenarioError
from sim.metrics.latency import latencies
from sim.metrics.record import RunRecord, Status
from sim.rng import Streams
from sim.scenario.build import ArmSetup, draw_tape, serve, set_up
from sim.scenario.schema import Scenario
from sim.validation.harness.clients import LOCAL, ClientPath, Clients

#: Requests of a user; and of those whose outputs are longer than this many tokens, those simulated.
WAVES, LONG_OUTPUT, SIMULATED = 10, 2048, 4
_SHORTEST = 0.8
#: Shapes of InferenceMAX, input and output tokens.
SHAPES = ((1024, 1024), (1024, 8192), (8192, 1024))


class WaveTimes(NamedTuple):
    """Means over all requests, as clients see them."""

    tpot_ms: float
    ttft_ms: float


def users_of(concurrency: int, input_tokens: int, output_tokens: int) -> int:
    """Requests under way on a server of `concurrency` slots."""
    return concurrency + ((input_tokens, output_tokens) not in SHAPES)


def wave_workload(concurrency: int, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """The `workload` of such a run."""
    shortest = _SHORTEST if (input_tokens, output_tokens) in SHAPES else 1.0
    users = users_of(concurrency, input_tokens, output_tokens)
    return {
        "arrivals": {"kind": "closed", "max_concurrency": users},
        "prompt_tokens": _range(input_tokens, shortest),
        "output_tokens": _range(output_tokens, shortest),
        "num_requests": users * (SIMULATED if output_tokens > LONG_OUTPUT else WAVES),
    }


def _range(nominal: int, shortest: float) -> dict[str, object]:
    return {"kind": "uniform", "min": max(1, round(shortest * nominal)), "max": nominal}


def run_waves(scenario: Scenario, arm: str, path: ClientPath = LOCAL) -> WaveTimes:
    """Simulate and weigh.

    Raises:
        ScenarioError: requests were rejected.
    """
    streams, setup = Streams(scenario.seed, 0), set_up(scenario, arm, Path())
    requests = scenario.workload.requests(streams, Path())
    users = int(getattr(scenario.workload.arrivals, "max_concurrency", 1))
    clients = Clients(users, path, len(requests))
    driven = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"arrivals": clients})})
    record = serve(driven, setup, requests, draw_tape(setup.arm, requests, streams), streams)
    if not bool((record.requests.status == Status.FINISHED).all()):
        raise ScenarioError("requests were rejected: they do not fit the simulated server")
    ttft_ms = (record.requests.first_token_ns - clients.sent_ns) * 1e-6 + step_ahead_ms(record, setup)
    weights = _weights(len(requests) // users, users)
    columns = (latencies(record).tpot, ttft_ms)
    return WaveTimes(*(float(np.average(column, weights=weights)) for column in columns))


def step_ahead_ms(record: RunRecord, setup: ArmSetup) -> float:
    """A step that was scheduled before a request came in; 0 where the host schedules between steps, or is simulated so.

    The host times of an engine that schedules beside the GPU are what sticks out (`HostOverhead.is_remainder`), and the
    server is simulated as if it scheduled between steps; that one step is what new requests miss. Steps without prefill
    are typical of what they meet.
    """
    if setup.engine.async_scheduling or not setup.cost.host.is_remainder:
        return 0.0
    steps = record.steps.duration_ns[record.steps.prefill_tokens == 0]
    return float(np.median(steps)) * 1e-6 if len(steps) else 0.0


def _weights(waves: int, users: int) -> list[float]:
    """How often each simulated request counts."""
    between = (WAVES - 2) / (waves - 2)
    return np.repeat([1.0, between, 1.0], [users, (waves - 2) * users, users]).tolist()
