"""No speculation: the zero of every method. Nothing is drafted and nothing is charged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork, SpeculationMethod


@SPECULATION.register
class Plain(SpeculationMethod):
    """Plain decoding (K = 0, no drafter loaded)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"method": "plain"}]})

    method: Literal["plain"] = "plain"

    @property
    def max_draft_tokens(self) -> int:
        """Always 0."""
        return 0

    @property
    def lookahead_tokens(self) -> int:
        """Always 0."""
        return 0

    def drafter_model(self, target: Model, base_dir: Path) -> Model | None:
        """There is none."""
        return None

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """A drafter that takes no time."""
        return NoDrafter()


@dataclass(frozen=True, slots=True)
class NoDrafter:
    """Drafts nothing."""

    def draft_seconds(self, work: DraftWork) -> float:
        """Always 0."""
        return 0.0
