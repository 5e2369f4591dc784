"""N-gram prompt lookup: a CPU search of the request's own tokens; no match, nothing drafted, nothing verified."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict, model_validator

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.proposers.ngram import NgramLookup, Occurrence
from sim.speculation.base import SPECULATION, Drafter, DraftWork
from sim.speculation.facts import MethodFacts, TypicalAcceptance
from sim.speculation.token_lookup import TokenLookup
from sim.units import Microseconds, Nanoseconds, PositiveCount

#: vLLM's, where neither length is given (`config/speculative.py`).
_DEFAULT_LOOKUP = 5

_FACTS = MethodFacts(
    drafting="No pass: the longest suffix of the request's own tokens that occurs earlier is continued.",
    cpu="a search, linear in the context",
    acceptance_kinds=("stream_replay", "ngram_markov", "sequence_replay"),
    engines={
        "vLLM": "`method: ngram`",
        "SGLang": "`--speculative-algorithm NGRAM`",
        "TensorRT-LLM": "`NGramDecodingConfig`",
        "Hugging Face": "`prompt_lookup_num_tokens`",
        "llama.cpp": "`examples/lookup`",
    },
    sources=("vLLM `v1/spec_decode/ngram_proposer.py`", "SpecDecode-Bench, arXiv 2601.11580 (CPU time)"),
    typical=(
        TypicalAcceptance("Llama-3.1-8B, GSM8K, K=3, match 3 to 7, T=0", 1.17, "SpecDecode-Bench, arXiv 2601.11580"),
        TypicalAcceptance("Llama-3.1-8B, ShareGPT, K=3, match 3 to 7, T=0", 1.29, "SpecDecode-Bench, arXiv 2601.11580"),
        TypicalAcceptance("code editing, K=5, match 2 to 5", 2.96, "vLLM pull request 24344"),
    ),
)


@SPECULATION.register
class Ngram(TokenLookup):
    """A search of the request's own tokens on the CPU.

    With `acceptance: {kind: stream_replay}` the drafts are looked up in recorded tokens. With other kinds the
    acceptance says which steps find a match (`ngram_markov`, `sequence_replay`; the rest draft at every step), and
    `prompt_lookup_min`, `prompt_lookup_max` and `occurrence` have no effect.

    Attributes:
        prompt_lookup_min: shortest suffix looked up; null: `prompt_lookup_max`.
        prompt_lookup_max: longest suffix looked up, the longest match wins; null: `prompt_lookup_min`. 5 when both are
            null, as in vLLM.
        occurrence: of several places with that suffix the `earliest` (vLLM, Hugging Face, TensorRT-LLM's older path
            with `is_use_oldest: true`) or the `latest` (`is_use_oldest: false`, all that its newer path takes).
        lookup_base_us: CPU time per step.
        lookup_ns_per_token: CPU time per token of context searched. Defaults from the time shares of SpecDecode-Bench
            (arXiv 2601.11580): 0.2, 1.0 and 1.3 % of a step at batch 1, 64 and 128, about 1,130 tokens of context.
    """

    lookup_keys: ClassVar[tuple[str, ...]] = ("prompt_lookup_min", "prompt_lookup_max", "occurrence")

    facts: ClassVar[MethodFacts | None] = _FACTS

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "ngram", "num_speculative_tokens": 3},
                {
                    "method": "ngram",
                    "num_speculative_tokens": 5,
                    "prompt_lookup_min": 2,
                    "prompt_lookup_max": 4,
                },
            ]
        }
    )

    method: Literal["ngram"] = "ngram"
    prompt_lookup_min: PositiveCount | None = None
    prompt_lookup_max: PositiveCount | None = None
    occurrence: Occurrence = "earliest"
    lookup_base_us: Microseconds = 10.0
    lookup_ns_per_token: Nanoseconds = 1.7

    @model_validator(mode="after")
    def _check_lookup(self) -> "Ngram":
        if self.proposer.prompt_lookup_min > self.proposer.prompt_lookup_max:
            raise ValueError(
                f"prompt_lookup_min ({self.prompt_lookup_min}) is above prompt_lookup_max ({self.prompt_lookup_max})"
            )
        return self

    @property
    def proposer(self) -> NgramLookup:
        """The look-up with the lengths filled in."""
        shortest = self.prompt_lookup_min or self.prompt_lookup_max or _DEFAULT_LOOKUP
        return NgramLookup(shortest, self.prompt_lookup_max or shortest, self.occurrence)

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
