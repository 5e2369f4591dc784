"""A separate, smaller model drafts: its own weights and KV, K sequential passes, prefill of every prompt included."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod


@SPECULATION.register
class DraftModel(AutoregressiveMethod):
    """A smaller model with weights and KV of its own.

    Attributes:
        model: catalogue id, Hugging Face id or path to a `config.json` of the draft model.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"method": "draft_model", "model": "qwen3-0.6b", "num_speculative_tokens": 4}]}
    )

    method: Literal["draft_model"] = "draft_model"
    model: str

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """The draft model's own shape; raises ScenarioError when `model` names none."""
        return find_model(self.model, base_dir)
