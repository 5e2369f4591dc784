from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.scenario.load import LoadedScenario, load_mapping

Load = Callable[..., LoadedScenario]


@pytest.fixture
def small(small_data: Callable[..., dict[str, Any]]) -> Load:
    """The small scenario at three loads, checked; keywords replace sections."""

    def make(base_dir: Path | None = None, **sections: Any) -> LoadedScenario:
        loads = {"replicates": 2, "vary": {"workload.arrivals.max_concurrency": [1, 2, 4]}}
        return load_mapping(small_data(**{"name": "small", "sweep": loads} | sections), base_dir)

    return make
