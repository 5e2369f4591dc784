"""Shared fixtures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measured data beside the checkout; they are not part of the project, so tests that need them may skip."""
    path = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the measured data sets are not beside this checkout")
    return path


@pytest.fixture(scope="session")
def small_data() -> Callable[..., dict[str, Any]]:
    """What a user writes for a scenario that runs in a blink: constant step times, two arms, a few requests.

    Keywords replace sections.
    """

    def make(**sections: Any) -> dict[str, Any]:
        scenario: dict[str, Any] = {
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
            "sweep": {"replicates": 2},
        }
        return scenario | sections

    return make


@pytest.fixture
def small_file(
    small_data: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """The small scenario as `mine.yaml` in an empty working directory; called with sections, returns the name."""
    monkeypatch.chdir(tmp_path)

    def write(name: str = "mine.yaml", **sections: Any) -> str:
        Path(name).write_text(json.dumps(small_data(**sections), indent=1), encoding="utf-8")
        return name

    return write
