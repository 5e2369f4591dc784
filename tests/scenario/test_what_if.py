"""Factors on times and acceptance do what they say, and nothing when they are 1."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.acceptance.iid import Iid
from sim.acceptance.per_rank import PerRank
from sim.acceptance.walk import walk
from sim.metrics.record import RunRecord
from sim.rng import Streams
from sim.scenario.build import set_up, simulate
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario
from sim.scenario.what_if import WhatIf
from sim.theory.draft_trees import FixedShape, best_tree
from sim.workload.requests import RequestTable

K = 5


def scenario(**what_if: float) -> Scenario:
    arm: dict[str, Any] = {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
        "acceptance": {"kind": "iid", "rate": 0.7},
    }
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "constant", "target_ms": 10, "draft_ms": 1, "host": {"base_ms": 0.5}},
            "arms": {"plain": {}, "k3": arm},
            "workload": {"arrivals": {"kind": "closed", "max_concurrency": 4}, "num_requests": 40},
            "what_if": what_if,
        }
    ).scenario


def finish(record: RunRecord) -> np.ndarray[Any, np.dtype[np.int64]]:
    return record.requests.finish_ns


@pytest.mark.parametrize("arm", ["plain", "k3"])
def test_all_times_doubled_doubles_every_latency(arm: str) -> None:
    once, twice = (simulate(scenario(target_time=f, draft_time=f, host_time=f), arm, 0, Path()) for f in (1.0, 2.0))
    np.testing.assert_array_equal(2 * finish(once), finish(twice))


def test_verify_and_draft_time_touch_speculation_alone() -> None:
    for factor in ({"verify_time": 1.5}, {"draft_time": 3.0}):
        np.testing.assert_array_equal(
            finish(simulate(scenario(), "plain", 0, Path())), finish(simulate(scenario(**factor), "plain", 0, Path()))
        )
        slower = finish(simulate(scenario(**factor), "k3", 0, Path())).max()
        assert slower > finish(simulate(scenario(), "k3", 0, Path())).max()


def table(num_requests: int = 400, output_tokens: int = 300) -> RequestTable:
    ones = np.ones(num_requests, np.int64)
    return RequestTable(0 * ones, 100 * ones, output_tokens * ones, 0 * ones, ones.astype(bool))


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 1.3])
def test_the_factor_is_that_of_the_conditional_rate(factor: float) -> None:
    """400 requests of 300 tokens: the standard error of a rate is below 0.3 %; 3 of them are allowed."""
    requests, model, streams = table(), Iid(rate=0.7), Streams(5)
    tape = model.tape(requests, K, streams)
    what_if = WhatIf(acceptance=factor)
    changed = what_if.tape(tape, model.survival(K), requests, streams)
    found, expected = walk(changed, requests, K).survival, Iid(rate=0.7 * factor).survival(K)
    np.testing.assert_allclose(found, expected, atol=0.01)
    np.testing.assert_allclose(what_if.survival(model.survival(K)), expected, rtol=1e-9)
    assert (changed.accepted <= tape.accepted).all() if factor <= 1 else (changed.accepted >= tape.accepted).all()
    assert changed is tape if factor == 1.0 else changed is not tape
    changed.check()


def test_more_acceptance_never_needs_more_steps() -> None:
    """Keyed to text positions: exact on every path for depth-independent rates."""
    requests, model, streams = table(50), Iid(rate=0.6), Streams(1)
    tape, before = model.tape(requests, K, streams), None
    for factor in (0.3, 0.7, 0.95, 1.0, 1.2, 1.6):
        steps = walk(WhatIf(acceptance=factor).tape(tape, model.survival(K), requests, streams), requests, K).steps
        assert before is None or (steps <= before).all()
        before = steps


def test_the_closed_form_knows_the_factors() -> None:
    setup = set_up(scenario(acceptance=0.5), "k3", Path())
    np.testing.assert_allclose(setup.survival(2), [0.35, 0.35**2])


@pytest.mark.parametrize("factor", [0.6, 1.2])
def test_trees_lose_and_gain_depths(factor: float) -> None:
    """Below 1 each depth survives with the factor, also of a tree cut short; above 1 some walks go on."""
    shape = FixedShape(best_tree(np.tile([0.6, 0.2, 0.05], (4, 1)), 12))
    requests, model, streams = table(), PerRank(rates=(0.6, 0.2, 0.05)), Streams(5)
    tape, survival = model.tree_tape(requests, shape, streams), model.tree_survival(shape, 12)
    changed = WhatIf(acceptance=factor).tape(tape, survival, requests, streams)
    changed.check()
    assert np.array_equal(changed.at(12), changed.accepted)
    if factor > 1:
        assert (changed.accepted >= tape.accepted).all()
        assert changed.accepted.sum() > tape.accepted.sum()
        return
    for nodes in (12, 5):
        found, expected = walk(changed, requests, nodes).survival[:4], model.tree_survival(shape, nodes)
        np.testing.assert_allclose(found, expected * factor ** np.arange(1, 5), atol=0.01)


def test_lengths_are_scaled_rounded_and_never_empty() -> None:
    plain, scaled = scenario(), scenario(prompt_tokens=0.5, output_tokens=1.5)
    table = plain.workload.requests(Streams(3), Path())
    changed = scaled.what_if.requests(table)
    np.testing.assert_array_equal(changed.prompt_tokens, np.maximum(1, np.rint(table.prompt_tokens * 0.5)))
    np.testing.assert_array_equal(changed.output_tokens, np.rint(table.output_tokens * 1.5))
    assert changed.num_positions == changed.output_tokens.sum()
    assert plain.what_if.requests(table) is table
    assert scenario(output_tokens=0.001).what_if.requests(table).output_tokens.max() == 1
