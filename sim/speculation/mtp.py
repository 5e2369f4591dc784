"""Multi-token prediction: the target's own MTP layer drafts (DeepSeek-V3, arXiv 2412.19437 section 2.2)."""

from pathlib import Path
from typing import Literal

from sim.models.draft_heads import mtp_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod


@SPECULATION.register
class Mtp(AutoregressiveMethod):
    """`{method: mtp, num_speculative_tokens: 1}`; one full (often MoE) block per pass, run K times.

    Attributes:
        model: name of the MTP checkpoint; a label only, since the shape is derived.
    """

    method: Literal["mtp", "deepseek_mtp"]
    model: str | None = None

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """One block of the target's shape with its projection; the LM head is shared."""
        return mtp_head(target)
