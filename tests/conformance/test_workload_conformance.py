"""What every arrival process and every length distribution must do, whatever its kind."""

from itertools import pairwise

import numpy as np
import pytest
import simpy

from sim.rng import Streams
from sim.workload.arrivals.base import ARRIVALS
from sim.workload.lengths.base import LENGTHS, MAX_TOKENS
from sim.workload.requests import RequestTable

TRACE_NS = np.cumsum(np.arange(1, 401)) * 1_000_003
OBSERVED = np.arange(1, 401)


def examples(family: object) -> list[object]:
    return [
        pytest.param(cls.model_validate(example), id=kind)
        for kind, cls in family.members().items()  # type: ignore[attr-defined]
        for example in cls.model_config["json_schema_extra"]["examples"]
    ]


@pytest.mark.parametrize("process", examples(ARRIVALS))
def test_arrivals(process) -> None:
    times = process.arrival_ns(400, Streams(1, 3), TRACE_NS)
    assert times.dtype == np.int64
    assert times.shape == (400,)
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert (process.arrival_ns(400, Streams(1, 3), TRACE_NS) == times).all()
    assert (process.arrival_ns(150, Streams(1, 3), TRACE_NS) == times[:150]).all()
    assert process.automatic_num_requests(400) >= 1
    assert type(process).model_validate_json(process.model_dump_json()) == process


@pytest.mark.parametrize("process", examples(ARRIVALS))
def test_arrivals_hand_every_row_to_the_server_once_and_in_order(process) -> None:
    env, submitted = simpy.Environment(), []
    times = process.arrival_ns(60, Streams(1, 3), TRACE_NS)

    ones = np.ones(60, np.int64)
    requests = RequestTable(times, ones, ones, 0 * ones, ones > 0, sessions=process.sessions(60, Streams(1, 3)))

    def submit(row: int) -> simpy.Event:
        submitted.append((row, int(env.now)))
        return env.timeout(1_000)

    env.process(process.drive(env, requests, submit))
    env.run()
    assert sorted(row for row, _ in submitted) == list(range(60))
    if requests.sessions is None:
        assert [row for row, _ in submitted] == list(range(60))
    assert all(a <= b for (_, a), (_, b) in pairwise(submitted))
    if not process.waits:
        assert [now for _, now in submitted] == times.tolist()


@pytest.mark.parametrize("lengths", examples(LENGTHS))
def test_lengths(lengths) -> None:
    uniforms = np.append(Streams(1).per_row("test", 398), [0.0, 1 - 2.0**-53])
    drawn = lengths.draw(uniforms, OBSERVED)
    assert drawn.dtype == np.int64
    assert drawn.shape == (400,)
    assert drawn.min() >= 1
    assert drawn.max() <= lengths.max_tokens(OBSERVED) <= MAX_TOKENS
    assert (lengths.draw(uniforms[:150], OBSERVED[:150]) == drawn[:150]).all()
    assert drawn[:398].mean() == pytest.approx(lengths.mean_tokens(OBSERVED), rel=0.25)
    assert type(lengths).model_validate_json(lengths.model_dump_json()) == lengths
