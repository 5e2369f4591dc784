"""What lies outside of what was checked against measurements reaches the manifest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.experiment.answers import cost_caveats, cost_profile
from sim.scenario.cells import cell_scenarios

Load = Callable[..., Any]


def caveats(loaded: Any, context: float = 500.0) -> tuple[str, ...]:
    return cost_caveats(loaded.scenario, Path(), tuple(cell_scenarios(loaded.scenario)), context)


@pytest.fixture
def vllm(small: Load) -> Load:
    return lambda **sections: small(**({"cost_model": {"kind": "roofline"}} | sections))


def test_a_measured_gpu_format_and_engine_has_none(vllm: Load) -> None:
    assert caveats(vllm()) == ()


def test_speculation_beyond_the_checked_batch_and_context(vllm: Load) -> None:
    loaded = vllm(sweep={"replicates": 1, "vary": {"workload.arrivals.max_concurrency": [1, 256]}})
    batch, context = caveats(loaded, 9000.0)
    assert "up to batch 128; here up to 256" in batch
    assert "up to 2,000 tokens of context; here the mean is 9,000" in context


def test_plain_arms_alone_are_not_held_to_what_was_checked_of_speculation(vllm: Load) -> None:
    loaded = vllm(arms={"plain": {}}, sweep={"replicates": 1, "vary": {"workload.arrivals.max_concurrency": [256]}})
    assert caveats(loaded, 9000.0) == ()


def test_engine_gpu_and_model_are_named_once_for_all_arms(vllm: Load) -> None:
    found = caveats(vllm(cost_model={"kind": "roofline", "engine": "llamacpp"}, hardware="h200-sxm"))
    assert any("engine llamacpp" in clause for clause in found)
    assert any("H200" in clause for clause in found)
    assert len(found) == len(set(found))


def test_constant_times_have_none_and_the_engine_is_in_the_profile(small: Load, vllm: Load) -> None:
    assert caveats(small(), 90_000.0) == ()
    for loaded, engine in ((small(), None), (vllm(), "vllm")):
        profile = cost_profile(loaded.scenario, Path(), tuple(cell_scenarios(loaded.scenario)))
        assert profile.get("engine") == engine
