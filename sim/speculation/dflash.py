"""DFlash: block diffusion drafts K tokens in one pass over K + 1 queries per request (arXiv 2602.06036)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from sim.cost.base import NO_ATTENTION, AttentionLoad, BoundCost, ForwardPass
from sim.deployment import Deployment
from sim.models.draft_heads import dflash_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork
from sim.speculation.chain import NetworkMethod
from sim.speculation.facts import MethodFacts, TypicalAcceptance

_FACTS = MethodFacts(
    drafting="Every token of the target's pass (prompts included) has its states projected once, and from there to the "
    "keys and values of every draft layer; then one pass of 1 + K query tokens per request, which see each other and "
    "the whole context.",
    cpu="launches only",
    acceptance_kinds=("table_by_k", "per_position", "length"),
    engines={
        "vLLM": "`method: dflash`",
        "SGLang": "`--speculative-algorithm DFLASH`",
    },
    sources=(
        "DFlash, arXiv 2602.06036",
        "vLLM `v1/spec_decode/dflash.py`, `models/qwen3_dflash.py`, `VllmConfig.num_lookahead_tokens`",
        "shape: z-lab/Qwen3-8B-DFlash-b16 and z-lab/Qwen3.6-27B-DFlash (5 layers, 5 target states, block 16)",
    ),
    typical=(
        TypicalAcceptance("Llama-3.1-8B, GSM8K, block 10 (K=9), T=0", 4.32, "arXiv 2602.06036, Table 5"),
        TypicalAcceptance("Qwen3-8B, Math500, block 16 (K=15), T=0", 8.01, "arXiv 2602.06036, Table 3"),
    ),
    remarks=(
        "The first drafts depend on K, so a smaller K is not the start of a larger one: state the acceptance of the K "
        "in use (`table_by_k`).",
    ),
)


@SPECULATION.register
class DFlash(NetworkMethod):
    """The drafter's shape follows from the target's.

    Attributes:
        model: name of the drafter; a label only, since the shape is derived.
        draft_layers: decoder layers of the drafter: 5 in most published ones, 8 for Qwen3-Coder-30B-A3B.
        target_states: target layers whose states it reads.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS
    first_drafts_depend_on_k: ClassVar[bool] = True

    model_config = ConfigDict(json_schema_extra={"examples": [{"method": "dflash", "num_speculative_tokens": 15}]})

    method: Literal["dflash"] = "dflash"
    model: str | None = None
    draft_layers: Annotated[int, Field(ge=1, le=64)] = 5
    target_states: Annotated[int, Field(ge=1, le=64)] = 5

    @property
    def use_eagle(self) -> bool:
        """Always: it reads the target's hidden states (vLLM counts `dflash` among `EagleModelTypes`)."""
        return True

    @property
    def lookahead_tokens(self) -> int:
        """K + 1: the token just sampled is a query too (vLLM `VllmConfig.num_lookahead_tokens`)."""
        return self.num_speculative_tokens + 1

    @property
    def drafts_in_parallel(self) -> bool:
        """Always."""
        return True

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """Decoder layers of the target's shape that read its states."""
        return dflash_head(target, self.draft_layers, self.target_states)

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price the block pass on the deployment."""
        return BlockDrafter(cost)


@dataclass(frozen=True, slots=True)
class BlockDrafter:
    """The intake of the target's states and one block pass; K = 0 has the intake alone, which keeps the KV in step."""

    cost: BoundCost

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of one step's drafting; 0 when the target's pass is empty."""
        if not work.target.num_tokens:
            return 0.0
        taken_in = work.target.num_tokens + work.catch_up.num_tokens
        return self.cost.draft_pass_seconds(block_pass(work), taken_in)


def block_pass(work: DraftWork) -> ForwardPass:
    """1 + K queries per drafting request; each sees the context and the whole block, for the mask is not causal."""
    n, k = work.num_seqs, work.num_draft_tokens
    if not k or not n:
        return ForwardPass(0, 0, 0, 0, NO_ATTENTION, NO_ATTENTION)
    queries = 1 + k
    read = work.kv_tokens + n * queries
    return ForwardPass(n, n * queries, n * k, 0, NO_ATTENTION, AttentionLoad(n, n * queries, read, queries * read))
