"""Loads written into scenarios of every kind of arrivals."""

from typing import Any

import pytest

from sim.errors import ScenarioError
from sim.experiment.load_axis import load_axis
from sim.scenario.load import LoadedScenario, load_mapping

SESSIONS = {"kind": "sessions", "turns": {"kind": "fixed", "value": 4}}


def with_arrivals(arrivals: dict[str, Any]) -> LoadedScenario:
    workload: dict[str, Any] = {"arrivals": arrivals}
    if arrivals["kind"] == "trace":
        workload["trace"] = "azure2023-conv"
    return load_mapping({"hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}}, "workload": workload})


@pytest.mark.parametrize(
    ("arrivals", "field", "value"),
    [
        ({"kind": "closed", "max_concurrency": 3}, "request_rate", 8.0),
        ({"kind": "poisson", "request_rate": 3}, "request_rate", 8.0),
        ({"kind": "gamma", "request_rate": 3, "burstiness": 0.5}, "request_rate", 8.0),
        ({**SESSIONS, "session_rate": 1}, "session_rate", 2.0),
    ],
)
def test_a_rate_is_that_of_requests(arrivals: dict[str, Any], field: str, value: float) -> None:
    loaded = with_arrivals(arrivals)
    axis = load_axis(loaded, "request_rate")
    cell = axis.cell(loaded, 8.0, num_requests=500)
    assert getattr(cell.scenario.workload.arrivals, field) == value
    assert cell.scenario.workload.num_requests == 500
    assert axis.load(cell.vary[axis.key]) == 8.0
    if arrivals["kind"] == "gamma":
        assert cell.scenario.workload.arrivals.burstiness == 0.5


def test_a_trace_is_replayed_faster_or_slower() -> None:
    loaded = with_arrivals({"kind": "trace"})
    facts = loaded.scenario.workload.facts(loaded.base_dir)
    natural = facts.trace_rows / facts.trace_span_s
    cell = load_axis(loaded, "request_rate").cell(loaded, 2 * natural)
    assert cell.scenario.workload.arrivals.rate_scale == pytest.approx(2.0, rel=1e-3)


def test_concurrency_is_whole_users_of_a_closed_loop() -> None:
    loaded = with_arrivals({"kind": "poisson", "request_rate": 3})
    axis = load_axis(loaded, "concurrency")
    varied = axis.varied(loaded, [1.2, 2.6, 3.0], sweep={"replicates": 7}).scenario
    assert varied.sweep.vary == {"workload.arrivals.max_concurrency": (1, 3)}
    assert varied.sweep.replicates == 7


def test_closed_sessions_have_no_rate() -> None:
    with pytest.raises(ScenarioError, match="session_rate"):
        load_axis(with_arrivals({**SESSIONS, "max_concurrent_sessions": 4}), "request_rate")
