"""Multi-token prediction: the target's own MTP layer drafts (DeepSeek-V3, arXiv 2412.19437 section 2.2)."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from sim.models.draft_heads import mtp_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod


@SPECULATION.register
class Mtp(AutoregressiveMethod):
    """One full (often MoE) block of the target per pass, run K times.

    Attributes:
        model: name of the MTP checkpoint; a label only, since the shape is derived.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"method": "mtp", "num_speculative_tokens": 1}]})

    method: Literal["mtp", "deepseek_mtp"]
    model: str | None = None

    @property
    def use_eagle(self) -> bool:
        """Always: the hidden states of cached tokens are gone."""
        return True

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """One block of the target's shape with its projection; the LM head is shared."""
        return mtp_head(target)
