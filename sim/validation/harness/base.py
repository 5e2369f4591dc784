"""What a drive finds out about an arm."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from sim.errors import ScenarioError
from sim.scenario.schema import Scenario


class Recorded(NamedTuple):
    """Recorded acceptance sequences of a data set: the file and the method in it."""

    path: Path
    method: str


class ArmTimes(NamedTuple):
    """What was measured of an arm.

    Attributes:
        tokens_per_s: output tokens of all requests over the time.
        tpot_ms: mean time per output token after the first.
        ttft_ms: mean time to the first token.
        e2el_s: mean time of a request.
        running: requests running, on average.
    """

    tokens_per_s: float
    tpot_ms: float
    ttft_ms: float
    e2el_s: float
    running: float


class Drive(Protocol):
    """Runs one arm of a scenario in the way that a source measured."""

    def __call__(self, scenario: Scenario, arm: str, recorded: Recorded | None) -> ArmTimes:
        """Simulate and measure.

        Args:
            scenario: its arrivals and lengths say the load.
            arm: which arm.
            recorded: requests to repeat in the place of the scenario's, where there is a recording.
        """


def mean(of: Mapping[str, object], name: str) -> float:
    """A summary column.

    Raises:
        ScenarioError: it was not measured, for instance because every output is a single token.
    """
    value = of[name]
    if not isinstance(value, int | float):
        raise ScenarioError(f"the simulated run has no {name}")
    return float(value)
