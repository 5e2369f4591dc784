"""EAGLE and EAGLE-3: one decoder layer on the target's hidden states (arXiv 2401.15077, 2503.01840)."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from sim.models.draft_heads import eagle_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod


@SPECULATION.register
class Eagle(AutoregressiveMethod):
    """The head's shape follows from the target's.

    Attributes:
        model: name of the head; a label only, since the shape is derived.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "eagle3", "num_speculative_tokens": 3},
                {
                    "method": "eagle",
                    "num_speculative_tokens": 5,
                    "num_speculative_tokens_per_batch_size": [[1, 32, 5], [33, 128, 2], [129, 1024, 0]],
                },
            ]
        }
    )

    method: Literal["eagle", "eagle3"]
    model: str | None = None

    @property
    def use_eagle(self) -> bool:
        """Always: the hidden states of cached tokens are gone."""
        return True

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """One decoder layer of the target's shape, its projection and its LM head."""
        return eagle_head(target, self.method)
