"""Lookahead decoding: Jacobi windows and collected n-grams ride along in the target's step (arXiv 2402.02057)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork, SpeculationMethod
from sim.speculation.facts import MethodFacts, TypicalAcceptance
from sim.units import Microseconds, PositiveCount

#: The largest number of extra tokens per request and step that a run can record.
MAX_EXTRA_TOKENS = 255

_FACTS = MethodFacts(
    drafting="No pass of its own: the target's step carries (N - 1)(W + G) tokens per request instead of one.",
    cpu="keeping the pool of n-grams",
    acceptance_kinds=("guesses", "iid", "per_position", "length"),
    engines={
        "TensorRT-LLM": "`LookaheadDecodingConfig`",
        "llama.cpp": "`examples/lookahead`",
        "vLLM, SGLang": "not available",
    },
    sources=(
        "Lookahead decoding, arXiv 2402.02057",
        "TensorRT-LLM `LookaheadDecodingConfig` (names of the keys)",
        "llama.cpp `examples/lookahead/lookahead.cpp` (W = G = 15, N = 5)",
    ),
    typical=(
        TypicalAcceptance("Vicuna-7B, Spec-Bench, T=0", 1.64, "hemingkx/Spec-Bench leaderboard"),
        TypicalAcceptance("Vicuna-13B, MT-Bench, T=0", 1.69, "EAGLE-3, arXiv 2503.01840, Table 1"),
        TypicalAcceptance("Vicuna-13B, GSM8K, T=0", 1.90, "EAGLE-3, arXiv 2503.01840, Table 1"),
    ),
    remarks=(
        "Windows start empty: the first steps of a request accept less than this model says.",
        "No time of the pool could be traced; `pool_us_per_request` is 0 unless stated.",
        "The extra tokens attend to the context and to a few of each other; priced as causal.",
    ),
)


@SPECULATION.register
class Lookahead(SpeculationMethod):
    """No drafter: every step also computes a window of guesses and verifies n-grams that earlier windows produced.

    A step accepts up to N - 1 tokens and carries (N - 1)(W + G) - 1 tokens beside the one that plain decoding has.

    Attributes:
        max_window_size: W, parallel guesses per level of the window.
        max_ngram_size: N, tokens of an n-gram; the window has N - 1 levels.
        max_verification_set_size: G, n-grams verified per step.
        pool_us_per_request: CPU time per request and step for the pool of n-grams.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS
    drafts_on_cpu: ClassVar[bool] = True

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "lookahead", "max_window_size": 7, "max_ngram_size": 5, "max_verification_set_size": 7}
            ]
        }
    )

    method: Literal["lookahead"] = "lookahead"
    max_window_size: PositiveCount
    max_ngram_size: Annotated[int, Field(ge=2, le=64)]
    max_verification_set_size: PositiveCount
    pool_us_per_request: Microseconds = 0.0

    @model_validator(mode="after")
    def _recordable(self) -> Self:
        if self.max_draft_tokens > MAX_EXTRA_TOKENS:
            raise ValueError(
                f"(max_ngram_size - 1) x (max_window_size + max_verification_set_size) - 1 is {self.max_draft_tokens}; "
                f"at most {MAX_EXTRA_TOKENS} extra tokens per request are simulated"
            )
        return self

    @property
    def max_draft_tokens(self) -> int:
        """Extra tokens of each request in every step: (N - 1)(W + G) - 1."""
        return (self.max_ngram_size - 1) * (self.max_window_size + self.max_verification_set_size) - 1

    @property
    def max_accepted_tokens(self) -> int:
        """N - 1: an n-gram starts with a token that is known."""
        return self.max_ngram_size - 1

    @property
    def lookahead_tokens(self) -> int:
        """0: what is not accepted leaves nothing behind, and the tokens of a step have slots in it."""
        return 0

    def drafter_model(self, target: Model, base_dir: Path) -> Model | None:
        """There is none."""
        return None

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """The pool's time on the CPU; the rest is in the target's pass."""
        return NgramPool(self.pool_us_per_request * 1e-6)


@dataclass(frozen=True, slots=True)
class NgramPool:
    """Collects n-grams from every request's window."""

    per_request_s: float

    def draft_seconds(self, work: DraftWork) -> float:
        """CPU time of one step."""
        return self.per_request_s * work.num_seqs if work.num_draft_tokens else 0.0
