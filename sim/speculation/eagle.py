"""EAGLE and EAGLE-3: one decoder layer on the target's hidden states (arXiv 2401.15077, 2503.01840)."""

from pathlib import Path
from typing import Literal

from sim.models.draft_heads import eagle_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod


@SPECULATION.register
class Eagle(AutoregressiveMethod):
    """`{method: eagle3, num_speculative_tokens: 3}`; the head's shape follows from the target's.

    Attributes:
        model: name of the head; a label only, since the shape is derived.
    """

    method: Literal["eagle", "eagle3"]
    model: str | None = None

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """One decoder layer of the target's shape, its projection and its LM head."""
        return eagle_head(target, self.method)
