"""Multi-token prediction: the target's own MTP layer drafts (DeepSeek-V3, arXiv 2412.19437 section 2.2)."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.models.draft_heads import mtp_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod
from sim.speculation.facts import MethodFacts, TypicalAcceptance

_FACTS = MethodFacts(
    drafting="One pass over the target's new tokens (prompts included), then K - 1 passes of one token per request, "
    "each through one full block of the target (with experts where it has them) and its LM head.",
    cpu="launches only",
    acceptance_kinds=("per_position", "per_depth", "length", "histogram", "iid"),
    engines={
        "vLLM": "`method: mtp` (every `*_mtp` is read as this)",
        "SGLang": "`--speculative-algorithm EAGLE` with the target's own module (`NEXTN`)",
        "TensorRT-LLM": "`MTPDecodingConfig`",
    },
    sources=("DeepSeek-V3, arXiv 2412.19437, section 2.2", "vLLM `models/deepseek_mtp.py`"),
    typical=(
        TypicalAcceptance("DeepSeek-V4-Pro, SPEED-Bench coding, K=1", 1.79, "InferenceX golden lengths (Apache-2.0)"),
        TypicalAcceptance("DeepSeek-V4-Pro, SPEED-Bench coding, K=3", 2.49, "InferenceX golden lengths (Apache-2.0)"),
        TypicalAcceptance("GLM-5.2-FP8, SPEED-Bench coding, K=3", 2.99, "InferenceX golden lengths (Apache-2.0)"),
    ),
)


@SPECULATION.register
class Mtp(AutoregressiveMethod):
    """One full (often MoE) block of the target per pass, run K times.

    Attributes:
        model: name of the MTP checkpoint; a label only, since the shape is derived.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS

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
