"""Multi-turn sessions on the whole server: when turns are sent, how sessions end, and what caching saves."""

from pathlib import Path

import numpy as np
import pytest

from sim.experiment.task import measure_of, run_notes
from sim.metrics.record import RunRecord, Status
from sim.metrics.series import request_columns
from sim.metrics.summary import measure_run, summary_row
from sim.rng import Streams
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario
from sim.workload.requests import Sessions

OPEN = {"kind": "sessions", "turns": {"kind": "uniform", "min": 1, "max": 7}, "think_time": 2.0, "session_rate": 1.0}
CLOSED = {**{k: v for k, v in OPEN.items() if k != "session_rate"}, "max_concurrent_sessions": 12}
EAGLE = {
    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
    "acceptance": {"kind": "iid", "rate": 0.7},
}


def scenario(arrivals: dict[str, object], num_requests: int = 300, **engine: object) -> Scenario:
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": engine,
            "arms": {"plain": {}, "eagle3": EAGLE},
            "workload": {
                "arrivals": arrivals,
                "shared_prefix": 400,
                "prompt_tokens": {"kind": "lognormal", "mean": 100, "cv": 1.0, "min": 1, "max": 600},
                "output_tokens": {"kind": "lognormal", "mean": 120, "cv": 0.8, "min": 1, "max": 500},
                "num_requests": num_requests,
            },
        },
        Path(),
    ).scenario


def serve(spec: Scenario, arm: str = "plain") -> tuple[RunRecord, Sessions]:
    sessions = spec.workload.requests(Streams(spec.seed, 0), Path()).sessions
    assert sessions is not None
    return simulate(spec, arm, 0, Path()), sessions


@pytest.mark.parametrize("arm", ["plain", "eagle3"])
@pytest.mark.parametrize("engine", [{}, {"async_scheduling": True}])
@pytest.mark.parametrize("arrivals", [OPEN, CLOSED])
def test_a_turn_is_sent_when_the_user_has_thought(
    arrivals: dict[str, object], engine: dict[str, object], arm: str
) -> None:
    record, sessions = serve(scenario(arrivals, 120, **engine), arm)
    rows, later = record.requests, np.flatnonzero(sessions.turn)
    assert (rows.status == Status.FINISHED).all()
    assert (rows.arrival_ns[later] == rows.finish_ns[later - 1] + sessions.think_ns[later]).all()
    assert (np.diff(rows.arrival_ns[sessions.turn == 0]) >= 0).all()


def test_a_closed_loop_of_sessions_keeps_their_number() -> None:
    record, sessions = serve(scenario(CLOSED))
    starts = record.requests.arrival_ns[sessions.turn == 0]
    ends = record.requests.finish_ns[np.append(np.flatnonzero(sessions.turn == 0)[1:], len(sessions.turn)) - 1]
    assert np.count_nonzero(starts == 0) == 12
    assert sorted(starts[12:].tolist()) == sorted(ends.tolist())[: len(starts) - 12]


def test_nearly_all_of_a_later_turn_is_found() -> None:
    """Everything but the last step's tokens and the part of a block before the new ones."""
    record, sessions = serve(scenario(CLOSED))
    rows, later = record.requests, np.flatnonzero(sessions.turn)
    missed = rows.shared_tokens[later] - rows.cached_tokens[later]
    assert missed.min() >= 0
    assert missed.max() <= 2 * 16
    assert record.evictions == 0


def test_eagle_recomputes_at_most_two_blocks_more_per_turn() -> None:
    """The dropped block, and that of the drafts accepted last, which were not cached yet."""
    plain, sessions = serve(scenario(CLOSED))
    eagle, _ = serve(scenario(CLOSED), "eagle3")
    later = np.flatnonzero(sessions.turn)
    less = (plain.requests.cached_tokens - eagle.requests.cached_tokens)[later]
    assert less.min() >= 0
    assert 16 <= less.mean() <= 32


def test_a_session_ends_at_the_turn_that_does_not_fit() -> None:
    spec = scenario(CLOSED, max_model_len=1500)
    record, sessions = serve(spec)
    rows = record.requests
    refused, unsent = rows.status == Status.REJECTED, rows.status == Status.UNSENT
    assert refused.any()
    assert unsent.any()
    assert (rows.prompt_tokens[refused] >= 1500).all()
    assert (rows.arrival_ns[unsent] < 0).all()
    ended = sessions.first_row[refused]
    assert len(np.unique(ended)) == len(ended)
    assert np.isin(sessions.first_row[unsent], ended).all()
    run = measure_run(record, measure_of(spec))
    row = summary_row(run)
    assert row["unsent"] == unsent.sum()
    assert row["failed"] == row["rejected"] == refused.sum()
    assert not run.window.measured[unsent].any()
    text = " ".join(run_notes(run, row))
    assert f"{len(np.unique(sessions.first_row[unsent]))} sessions ended early" in text
    assert f"{unsent.sum()} later turns were never sent" in text


@pytest.mark.parametrize("arrivals", [OPEN, CLOSED])
def test_metrics_of_sessions(arrivals: dict[str, object]) -> None:
    spec = scenario(arrivals, 600)
    record, sessions = serve(spec)
    run = measure_run(record, measure_of(spec))
    row = summary_row(run)
    first = record.requests.arrival_ns[sessions.turn == 0]
    assert run.window.steady
    assert run.window.end_ns == first[-1]
    assert run.window.start_ns in first
    measured = run.window.measured
    assert (record.requests.arrival_ns[measured] <= run.window.end_ns).all()
    assert measured.sum() > 300
    asked = run.window.contains(record.requests.first_scheduled_ns)
    found, prompt = record.requests.cached_tokens[asked].sum(), record.requests.prompt_tokens[asked].sum()
    assert row["prefix_cache_hit_rate"] == pytest.approx(found / prompt)
    assert row["prefix_cache_hit_rate"] <= row["prefix_cache_shared_rate"] < 1
    assert row["saturated"] is False
    columns = request_columns(run, ("default",))
    assert (columns["session"] == sessions.first_row).all()
    assert (columns["cached_tokens"] == record.requests.cached_tokens).all()
