"""Saturation against queues whose load is known: a fixed time per step, so many seats, Poisson arrivals."""

from pathlib import Path

import pytest

from sim.metrics.usage import is_saturated
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario

SEEDS = 40


def queue(load: float, seats: int, num_requests: int, steps: int = 1) -> Scenario:
    """Every seat serves one request in `steps` steps of 10 ms."""
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "constant", "target_ms": 10},
            "engine": {"max_num_seqs": seats, "max_model_len": 4096},
            "arms": {"plain": {}},
            "workload": {
                "arrivals": {"kind": "poisson", "request_rate": load * seats * 100 / steps},
                "prompt_tokens": {"kind": "fixed", "value": 8},
                "output_tokens": {"kind": "fixed", "value": steps},
                "num_requests": num_requests,
            },
        }
    ).scenario


def share_flagged(scenario: Scenario, seeds: int = SEEDS) -> float:
    return sum(is_saturated(simulate(scenario, "plain", seed, Path())) for seed in range(seeds)) / seeds


@pytest.mark.slow
@pytest.mark.parametrize("seats", [1, 32])
@pytest.mark.parametrize(("load", "saturated"), [(0.8, False), (0.95, False), (1.05, True), (1.2, True)])
def test_loads_on_either_side_of_one_are_told_apart(load: float, saturated: bool, seats: int) -> None:
    """5,000 requests: at load 1.05 the backlog of the second half grows by 125 +- 50."""
    flagged = share_flagged(queue(load, seats, num_requests=5000))
    assert (flagged if saturated else 1 - flagged) >= 0.95


@pytest.mark.parametrize(("load", "saturated"), [(0.8, False), (1.2, True)])
def test_clear_loads_are_told_apart_by_few_requests(load: float, saturated: bool) -> None:
    flagged = share_flagged(queue(load, seats=32, num_requests=1000))
    assert (flagged if saturated else 1 - flagged) >= 0.95


@pytest.mark.parametrize("load", [0.8, 0.9])
def test_few_requests_do_not_make_a_stable_queue_look_saturated(load: float) -> None:
    """Its backlog wanders longer than such a run lasts, and yet it is empty now and then."""
    assert share_flagged(queue(load, seats=8, num_requests=500)) <= 0.05


def test_a_server_with_seats_for_all_is_judged_by_its_backlog() -> None:
    """Nobody ever waits: 100 steps of 10 ms hold 400 requests at a time, once they have come."""
    assert share_flagged(queue(0.4, seats=1024, num_requests=4000, steps=100), 10) == 0.0
    filling = queue(1.0, seats=1024, num_requests=1000, steps=300)
    assert share_flagged(filling, 5) == 1.0
