"""What `--quick` changes: fewer replicates and fewer values of each varied field, the ends kept."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.scenario.schema import Scenario

MAX_VALUES, MAX_REPLICATES = 5, 2


def quick_overrides(scenario: Scenario) -> list[str]:
    """`--set` arguments that make a first look of an experiment; values are JSON, which is YAML."""
    replicates = min(MAX_REPLICATES, scenario.sweep.replicates)
    vary = {key: thinned(values) for key, values in scenario.sweep.vary.items()}
    return [f"sweep.replicates={replicates}", *([f"sweep.vary={json.dumps(vary)}"] if vary else [])]


def thinned(values: Sequence[Any]) -> list[Any]:
    """At most `MAX_VALUES` of the values, evenly spread, first and last included."""
    count = min(MAX_VALUES, len(values))
    return [values[round(i)] for i in np.linspace(0, len(values) - 1, count)]
