"""Published cells that an engine's costs are fitted to, and what the suite's harness says of them under any costs.

The cells are those of the suite `speedup`, driven in the same way: nothing here prices a step. GPU and model come from
the cell, never from a fit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.roofline import BoundEngine, Roofline, bind_engine
from sim.hardware.engine_profile import EngineProfile
from sim.hardware.profile import StepFit
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario
from sim.validation.cases import Case, build_cases
from sim.validation.published import read_published
from sim.validation.speedup import DRIVES, solve_tokens

Floats = NDArray[np.float64]

#: The parameters of an engine profile that can be fitted.
PARAMETERS = (
    "host_base_ms", "host_per_request_ms", "draft_pass_ms", "speculative_step_ms", "speculative_request_ms",
    "per_row_us", "kv_reads",
)  # fmt: skip


def shipped(engine: EngineProfile) -> dict[str, float]:
    """The values of a profile."""
    return {name: getattr(engine, name).value for name in PARAMETERS}


def with_values(engine: EngineProfile, values: Mapping[str, float]) -> EngineProfile:
    """The profile with other values."""
    return engine.model_copy(
        update={name: getattr(engine, name).model_copy(update={"value": value}) for name, value in values.items()}
    )


class Candidate(Roofline):
    """The fitted kernels with an engine profile that is not shipped."""

    candidate: EngineProfile

    def bound_engine(self, steps: StepFit | None = None) -> BoundEngine:
        """The candidate's costs."""
        del steps
        return bind_engine(self.candidate)


class Cell(NamedTuple):
    """One published figure: the speed-up of a case, or its plain arm."""

    case: Case
    quantity: Literal["speed-up", "plain"]

    @property
    def measured(self) -> float:
        """As published."""
        value = self.case.row.measured_speedup if self.quantity == "speed-up" else self.case.row.plain_value
        assert value
        return value

    @property
    def source(self) -> str:
        """Source and table."""
        return f"{self.case.row.source.split(' / ')[0]}, {self.case.row.table}"


class Selection(NamedTuple):
    """Which cells: the start of the case's id, what its K or tree contains, and the quantities."""

    prefix: str
    contains: str = ""
    quantities: tuple[Literal["speed-up", "plain"], ...] = ("speed-up", "plain")
