"""Plain is the zero of speculation: a method that is told to draft nothing, at no cost, is plain decoding."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sim.metrics.record import RunRecord
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping

NOTHING = {"num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[1, 4096, 0]]}
IID = {"kind": "iid", "rate": 0.8}
ARMS = {
    "ngram": {"speculative_config": {"method": "ngram", **NOTHING}, "acceptance": IID},
    "layerskip": {"speculative_config": {"method": "layerskip", "exit_layer": 8, **NOTHING}, "acceptance": IID},
    "eagle3": {"speculative_config": {"method": "eagle3", **NOTHING}, "acceptance": IID},
}
LOADS = {"closed": {"kind": "closed", "max_concurrency": 9}, "poisson": {"kind": "poisson", "request_rate": 12}}


def plain_and(
    arm: str, load: str, cost_model: dict[str, object], engine: dict[str, object]
) -> tuple[RunRecord, RunRecord]:
    scenario = load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": cost_model,
            "engine": {"max_model_len": 900, "num_gpu_blocks_override": 120, **engine},
            "arms": {"plain": {}, arm: ARMS[arm]},
            "workload": {
                "arrivals": LOADS[load],
                "prompt_tokens": {"kind": "lognormal", "mean": 150, "cv": 1.0, "min": 1, "max": 600},
                "output_tokens": {"kind": "lognormal", "mean": 90, "cv": 0.8, "min": 1, "max": 300},
                "num_requests": 80,
            },
        }
    ).scenario
    plain, other = (simulate(scenario, name, 0, Path()) for name in ("plain", arm))
    return plain, other


def fields(part: object) -> dict[str, object]:
    return {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}  # type: ignore[arg-type]


def assert_equal(one: object, other: object, leave_out: frozenset[str] = frozenset()) -> None:
    for name, value in fields(one).items():
        if name not in leave_out and isinstance(value, np.ndarray):
            assert value.tobytes() == fields(other)[name].tobytes(), name  # type: ignore[attr-defined]


@pytest.mark.parametrize("load", LOADS)
def test_a_method_without_network_that_drafts_nothing_is_plain_to_the_last_byte(load: str) -> None:
    plain, ngram = plain_and("ngram", load, {"kind": "roofline"}, {})
    assert plain.steps.preemptions.sum() > 0 or load == "poisson"
    for part in ("requests", "steps"):
        assert_equal(getattr(ngram, part), getattr(plain, part))
    assert_equal(ngram, plain)


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("load", LOADS)
def test_a_free_drafter_that_drafts_nothing_changes_nothing_but_the_slots_it_reserves(
    load: str, async_scheduling: bool
) -> None:
    engine = {"async_scheduling": async_scheduling, "num_gpu_blocks_override": 20_000}
    plain, eagle3 = plain_and("eagle3", load, {"kind": "constant", "target_ms": 7, "draft_ms": 0}, engine)
    reserved = frozenset({"kv_blocks_used"})
    for part in ("requests", "steps"):
        assert_equal(getattr(eagle3, part), getattr(plain, part), reserved)
    assert_equal(eagle3, plain)
    assert (eagle3.steps.kv_blocks_used >= plain.steps.kv_blocks_used).all()


def test_the_targets_own_layers_that_draft_nothing_change_nothing_but_the_slots_they_reserve() -> None:
    plain, layerskip = plain_and("layerskip", "closed", {"kind": "roofline"}, {"num_gpu_blocks_override": 20_000})
    for part in ("requests", "steps"):
        assert_equal(getattr(layerskip, part), getattr(plain, part), frozenset({"kv_blocks_used"}))
    assert_equal(layerskip, plain)
