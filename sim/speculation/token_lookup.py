"""What methods share that look their drafts up in token ids: no network, no KV, and time of the CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sim.models.model import Model
from sim.speculation.base import DraftWork
from sim.speculation.chain import ChainMethod


class TokenLookup(ChainMethod):
    """A method that finds its drafts in token ids on the CPU: no network, no KV of its own, as many drafts as found."""

    drafts_have_probabilities: ClassVar[bool] = False
    drafts_on_cpu: ClassVar[bool] = True
    draft_count_varies: ClassVar[bool] = True

    no_effect_keys: ClassVar[frozenset[str]] = ChainMethod.no_effect_keys | {"model", "draft_tensor_parallel_size"}

    @property
    def lookahead_tokens(self) -> int:
        """0: these drafts have no KV of their own (vLLM)."""
        return 0

    def drafter_model(self, target: Model, base_dir: Path) -> Model | None:
        """There is none."""
        return None


@dataclass(frozen=True, slots=True)
class LookupPerRequest:
    """A search for each request, whatever its context."""

    base_s: float
    per_request_s: float

    def draft_seconds(self, work: DraftWork) -> float:
        """CPU time of one step's searches; 0 when no request is to be drafted for."""
        if not work.num_seqs or not work.num_draft_tokens:
            return 0.0
        return self.base_s + self.per_request_s * work.num_seqs
