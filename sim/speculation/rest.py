"""REST: drafts retrieved from a datastore of texts, on the CPU (arXiv 2311.08252)."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.proposers.retrieval import Retrieval
from sim.speculation.base import SPECULATION, Drafter
from sim.speculation.facts import MethodFacts, TypicalAcceptance
from sim.speculation.token_lookup import LookupPerRequest, TokenLookup
from sim.units import Bytes, Microseconds, Milliseconds, PositiveCount

_FACTS = MethodFacts(
    drafting="No pass: continuations of the longest suffix found in a datastore of texts.",
    cpu="a search per request, shared by a few threads",
    acceptance_kinds=("stream_replay", "sequence_replay"),
    engines={"vLLM": "no", "SGLang": "no", "TensorRT-LLM": "no", "Hugging Face": "no", "llama.cpp": "no"},
    sources=("REST, arXiv 2311.08252", "FasterDecoding/REST (reference implementation)"),
    typical=(TypicalAcceptance("Vicuna-7B, Spec-Bench, tree of 64 nodes, batch 1", 1.82, "Spec-Bench"),),
    remarks=("The reference verifies a tree of 64 nodes; here the most frequent continuation is a chain.",),
)


@SPECULATION.register
class Rest(TokenLookup):
    """Retrieval-based speculative decoding; the most frequent continuation, as a chain.

    The reference implementation verifies a tree of 64 nodes; a chain accepts less per step and verifies far less.
    With `acceptance: {kind: stream_replay}` the drafts are looked up in `datastore`. With other kinds the settings of
    the look-up have no effect, and every step drafts what the acceptance says.

    Attributes:
        datastore: token streams (see `stream_replay`) whose outputs are the texts looked up; null: the outputs of the
            requests before, in the order of the replayed file.
        max_token_span: longest suffix looked up, down to 2 tokens.
        max_continuation: longest draft that is retrieved.
        datastore_bytes: host memory of the real datastore, tokens and suffix array. The published ones take 0.5 to
            27 GB (FasterDecoding/REST); default: their large one for chat.
        lookup_base_us: CPU time per step.
        search_ms: CPU time per drafting request. An assumption of the order of what a suffix array of that size takes
            with its continuations and their trie; measure yours.
        search_threads: threads that share the searches of a step.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS
    lookup_keys: ClassVar[tuple[str, ...]] = ("datastore", "max_token_span", "max_continuation")

    model_config = ConfigDict(json_schema_extra={"examples": [{"method": "rest", "num_speculative_tokens": 8}]})

    method: Literal["rest"] = "rest"
    datastore: Annotated[str, Field(min_length=1)] | None = None
    max_token_span: Annotated[PositiveCount, Field(ge=2, le=64)] = 16
    max_continuation: Annotated[PositiveCount, Field(le=64)] = 10
    datastore_bytes: Bytes = 12_000_000_000
    lookup_base_us: Microseconds = 10.0
    search_ms: Milliseconds = 0.6
    search_threads: PositiveCount = 6

    def located(self, base_dir: Path) -> Self:
        """With `datastore` made absolute, relative to the scenario's folder."""
        if self.datastore is None:
            return self
        return self.model_copy(update={"datastore": str((base_dir / self.datastore).resolve())})

    @property
    def proposer(self) -> Retrieval:
        """The look-up with these settings."""
        store = None if self.datastore is None else Path(self.datastore)
        return Retrieval(self.max_token_span, self.max_continuation, store)

    def host_memory_bytes(self, mean_output_tokens: float) -> float:
        """The datastore."""
        return float(self.datastore_bytes)

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Searches on the CPU, shared among its threads."""
        return LookupPerRequest(self.lookup_base_us * 1e-6, self.search_ms * 1e-3 / self.search_threads)
