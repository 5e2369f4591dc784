from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.scenario.load import LoadedScenario, load_mapping

Load = Callable[..., LoadedScenario]


@pytest.fixture
def small() -> Load:
    """A scenario that runs in a blink: constant step times, two arms, a few requests; keywords replace sections."""

    def make(base_dir: Path | None = None, **sections: Any) -> LoadedScenario:
        scenario: dict[str, Any] = {
            "name": "small",
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "constant", "target_ms": 10, "draft_ms": 1},
            "arms": {
                "plain": {},
                "k3": {
                    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
                    "acceptance": {"kind": "iid", "rate": 0.7},
                },
            },
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 2},
                "prompt_tokens": {"kind": "lognormal", "mean": 60, "cv": 0.5},
                "output_tokens": {"kind": "lognormal", "mean": 30, "cv": 0.5, "min": 2},
                "num_requests": 24,
            },
            "sweep": {"replicates": 2, "vary": {"workload.arrivals.max_concurrency": [1, 2, 4]}},
        }
        return load_mapping(scenario | sections, base_dir)

    return make
