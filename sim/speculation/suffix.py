"""Suffix decoding: frequent continuations from a suffix tree of prompt and outputs, on the CPU (arXiv 2411.04975)."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from sim.acceptance.base import MAX_DRAFT_TOKENS
from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.proposers.suffix import SuffixDecoding
from sim.speculation.base import SPECULATION, Drafter
from sim.speculation.facts import MethodFacts
from sim.speculation.token_lookup import LookupPerRequest, TokenLookup
from sim.units import Microseconds, PositiveCount

#: Host memory per cached token: a suffix tree of n tokens has fewer than 2 n nodes, of about 112 bytes in
#: ArcticInference (`suffix_tree.h`, hash maps not counted), and the token itself.
_BYTES_PER_TOKEN = 2 * 112 + 4
#: vLLM's default.
_TREE_DEPTH = 24

_FACTS = MethodFacts(
    drafting="No pass: the most frequent continuation of the suffixes in a tree of earlier tokens.",
    cpu="a tree walk and update per request, one after another",
    acceptance_kinds=("stream_replay", "sequence_replay"),
    engines={"vLLM": "`method: suffix` (needs ArcticInference)"},
    sources=(
        "SuffixDecoding, arXiv 2411.04975",
        "ArcticInference `suffix_tree.cc`",
        "vLLM `v1/spec_decode/suffix_decoding.py`",
    ),
)


@SPECULATION.register
class Suffix(TokenLookup):
    """ArcticInference's suffix decoding, spelled as in vLLM; chains of varying length.

    With `acceptance: {kind: stream_replay}` recorded tokens are drafted from by the `suffix_decoding_` settings. With
    other kinds these have no effect on drafts: every step drafts what the acceptance says. vLLM drafts for one request
    after another (ArcticInference issue 204), so the time grows with the batch.

    Attributes:
        num_speculative_tokens: most drafts per step; when it is not given the tree's depth, as in vLLM.
        suffix_decoding_max_tree_depth: longest suffix and draft together.
        suffix_decoding_max_cached_requests: outputs kept for other requests, oldest dropped first; 0 = the request's
            own tokens only.
        suffix_decoding_max_spec_factor: drafts per token of the matching suffix.
        suffix_decoding_min_token_prob: drafts end where the probability estimated from frequencies falls below this.
        lookup_base_us: CPU time per step.
        lookup_us_per_request: CPU time per drafting request: tree update and walk. Default: the 20 us per token quoted
            for the method (ik_llama.cpp issue 1602); later versions walk several times faster.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS
    lookup_keys: ClassVar[tuple[str, ...]] = (
        "suffix_decoding_max_tree_depth", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
    )  # fmt: skip

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"method": "suffix"}, {"method": "suffix", "num_speculative_tokens": 16}]}
    )

    method: Literal["suffix"] = "suffix"
    num_speculative_tokens: Annotated[PositiveCount, Field(le=64)] = _TREE_DEPTH
    suffix_decoding_max_tree_depth: Annotated[PositiveCount, Field(ge=2, le=256)] = _TREE_DEPTH
    suffix_decoding_max_cached_requests: Annotated[int, Field(ge=0)] = 10_000
    suffix_decoding_max_spec_factor: Annotated[float, Field(gt=0, le=1000)] = 1.0
    suffix_decoding_min_token_prob: Annotated[float, Field(ge=0, le=1)] = 0.1
    lookup_base_us: Microseconds = 10.0
    lookup_us_per_request: Microseconds = 20.0

    @model_validator(mode="before")
    @classmethod
    def _depth_is_the_default(cls, data: Any) -> Any:
        depth = data.get("suffix_decoding_max_tree_depth") if isinstance(data, dict) else None
        if isinstance(depth, int) and data.get("num_speculative_tokens") is None:
            return {**data, "num_speculative_tokens": min(depth, MAX_DRAFT_TOKENS)}
        return data

    @property
    def proposer(self) -> SuffixDecoding:
        """The trees with these settings."""
        return SuffixDecoding(
            self.suffix_decoding_max_tree_depth,
            self.suffix_decoding_max_cached_requests,
            self.suffix_decoding_max_spec_factor,
            self.suffix_decoding_min_token_prob,
        )

    def host_memory_bytes(self, mean_output_tokens: float) -> float:
        """The tree of cached outputs when it is full; an estimate."""
        return self.suffix_decoding_max_cached_requests * mean_output_tokens * _BYTES_PER_TOKEN

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Tree walks on the CPU, one request after another."""
        return LookupPerRequest(self.lookup_base_us * 1e-6, self.lookup_us_per_request * 1e-6)
