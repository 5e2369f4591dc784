"""N-gram prompt lookup: a CPU search of the request's own tokens; no match, nothing drafted, nothing verified."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork
from sim.speculation.chain import ChainMethod
from sim.units import Microseconds, Nanoseconds


@SPECULATION.register
class Ngram(ChainMethod):
    """A search of the request's own tokens on the CPU.

    Which steps find a match comes from the acceptance model (`ngram_markov`, `sequence_replay`, or any other kind,
    which then drafts at every step). `prompt_lookup_min` and `prompt_lookup_max` therefore have no effect.

    Attributes:
        lookup_base_us: CPU time per step.
        lookup_ns_per_token: CPU time per token of context searched. Defaults from the time shares of SpecDecode-Bench
            (arXiv 2601.11580): 0.2, 1.0 and 1.3 % of a step at batch 1, 64 and 128, about 300 tokens of context.
    """

    drafts_have_probabilities: ClassVar[bool] = False
    no_effect_keys: ClassVar[frozenset[str]] = ChainMethod.no_effect_keys | {
        "model", "prompt_lookup_max", "prompt_lookup_min", "draft_tensor_parallel_size",
    }  # fmt: skip

    model_config = ConfigDict(json_schema_extra={"examples": [{"method": "ngram", "num_speculative_tokens": 3}]})

    method: Literal["ngram"] = "ngram"
    lookup_base_us: Microseconds = 10.0
    lookup_ns_per_token: Nanoseconds = 4.0

    @property
    def lookahead_tokens(self) -> int:
        """0: n-gram drafts have no KV of their own (vLLM)."""
        return 0

    def drafter_model(self, target: Model, base_dir: Path) -> Model | None:
        """There is none."""
        return None

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """A CPU search, independent of the GPU."""
        return NgramDrafter(self.lookup_base_us * 1e-6, self.lookup_ns_per_token * 1e-9)


@dataclass(frozen=True, slots=True)
class NgramDrafter:
    """Linear search over the known tokens of each request."""

    base_s: float
    per_token_s: float

    def draft_seconds(self, work: DraftWork) -> float:
        """CPU time of one step's look-ups; 0 when no request is to be drafted for."""
        if not work.num_seqs or not work.num_draft_tokens:
            return 0.0
        return self.base_s + self.per_token_s * work.kv_tokens
