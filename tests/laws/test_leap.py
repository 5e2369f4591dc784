"""Taking runs of steady steps at once changes nothing, to the last byte."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sim.metrics.record import RunRecord
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping

IID = {"kind": "iid", "rate": 0.7}
ARMS = {
    "plain": {},
    "eagle3": {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}, "acceptance": IID},
    "table": {
        "speculative_config": {
            "method": "eagle",
            "num_speculative_tokens": 5,
            "num_speculative_tokens_per_batch_size": [[1, 2, 5], [3, 6, 2], [7, 64, 0]],
        },
        "acceptance": IID,
    },
    "tree": {
        "speculative_config": {
            "method": "eagle3",
            "num_speculative_tokens": 12,
            "num_speculative_tokens_per_batch_size": [[1, 2, 12], [3, 6, 5], [7, 64, 1]],
            "tree": {"kind": "dynamic", "depth": 4, "top_k": 4},
        },
        "acceptance": {"kind": "per_rank", "rates": [0.6, 0.15, 0.05], "confidence_spread": 0.1},
    },
    "medusa": {
        "speculative_config": {
            "method": "medusa",
            "num_speculative_tokens": 25,
            "tree": {"kind": "named", "name": "eagle_25"},
        },
        "acceptance": {"kind": "length", "tokens_per_step": 2.4, "num_speculative_tokens": 5},
    },
    "schedule-stops": {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 4},
        "draft_length": {
            "kind": "draft_len_schedule",
            "draft_len_schedule": [[2, 4], [5, 1]],
            "switch_us": 70,
            "cudagraph_slowdown": 0.2,
        },
        "acceptance": IID,
    },
    "ngram": {
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
        "acceptance": {"kind": "ngram_markov", "profile": "sharegpt"},
    },
}
LOADS = {
    "closed-1": {"kind": "closed", "max_concurrency": 1},
    "closed-9": {"kind": "closed", "max_concurrency": 9},
    "poisson": {"kind": "poisson", "request_rate": 8},
    "sessions": {
        "kind": "sessions",
        "turns": {"kind": "uniform", "min": 1, "max": 5},
        "think_time": 0.5,
        "max_concurrent_sessions": 9,
    },
}


def columns(part: object) -> dict[str, np.ndarray]:
    return {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.name not in ("requests", "steps")}  # type: ignore[arg-type]


def assert_identical(one: RunRecord, other: RunRecord) -> None:
    for a, b in ((one, other), (one.requests, other.requests), (one.steps, other.steps)):
        for name, column in columns(a).items():
            assert np.array_equal(column, columns(b)[name]), name


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("num_gpu_blocks_override", [None, 90])
def test_leaping_is_bit_identical_to_stepping(arm: str, load: str, num_gpu_blocks_override: int | None) -> None:
    scenario = load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": {"max_model_len": 1400, "num_gpu_blocks_override": num_gpu_blocks_override},
            "arms": ARMS,
            "workload": {
                "arrivals": LOADS[load],
                "prompt_tokens": {"kind": "lognormal", "mean": 150, "cv": 1.0, "min": 1, "max": 600},
                "output_tokens": {"kind": "lognormal", "mean": 90, "cv": 0.8, "min": 1, "max": 300},
                "shared_prefix": {"tokens": 100, "count": 3, "skew": 1} if load in ("poisson", "sessions") else None,
                "num_requests": 60,
            },
        },
        Path(),
    ).scenario
    leaping, stepping = (simulate(scenario, arm, 0, Path(), leap=leap) for leap in (True, False))
    assert_identical(leaping, stepping)
    if load == "closed-9" and num_gpu_blocks_override:
        assert leaping.steps.preemptions.sum() > 0
    if load in ("poisson", "sessions"):
        assert leaping.requests.cached_tokens.sum() > 0
