"""Medusa: extra LM heads on the target's last hidden state, one per draft position (arXiv 2401.10774)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.cost.base import NO_ATTENTION, BoundCost, ForwardPass
from sim.deployment import Deployment
from sim.models.draft_heads import medusa_heads
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork
from sim.speculation.chain import TreeMethod
from sim.speculation.facts import MethodFacts, TypicalAcceptance
from sim.speculation.tree_drafter import KvCompaction
from sim.theory.draft_trees import FixedShape, GrownShape, TreeShape, chain
from sim.units import PositiveCount

_FACTS = MethodFacts(
    drafting="One pass of all heads over the last hidden state of each request; no attention.",
    cpu="none beyond the engine's",
    acceptance_kinds=("per_position", "per_depth", "per_rank", "length", "histogram"),
    engines={
        "vLLM": "`method: medusa`, chains only",
        "TensorRT-LLM": "`MedusaDecodingConfig`, trees by `medusa_choices`",
        "SGLang": "no",
        "llama.cpp": "no",
    },
    sources=("Medusa, arXiv 2401.10774", "vLLM `v1/spec_decode/medusa.py`"),
    typical=(TypicalAcceptance("Vicuna-7B, Spec-Bench, tree of 63 nodes, batch 1", 2.31, "Spec-Bench"),),
)


@SPECULATION.register
class Medusa(TreeMethod):
    """Heads that guess the next tokens independently of one another, all in one go: no attention, no KV of their own.

    Without `tree` the best guess of each head is a chain, as in vLLM; with `tree` the guesses are combined (the paper,
    TensorRT-LLM's `medusa_choices`). Heads do not know one another's guesses: acceptance falls faster with depth than
    for autoregressive drafters.

    Attributes:
        model: name of the heads; a label only, since the shape is derived.
        num_heads: heads loaded and run in every step; by default as many as the draft is deep.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "medusa", "num_speculative_tokens": 4},
                {
                    "method": "medusa",
                    "num_speculative_tokens": 63,
                    "num_heads": 5,
                    "tree": {"kind": "named", "name": "medusa_7b_63"},
                },
            ]
        }
    )

    method: Literal["medusa"] = "medusa"
    model: str | None = None
    num_heads: PositiveCount | None = Field(default=None, le=64)

    @model_validator(mode="after")
    def _heads_reach(self) -> Self:
        if isinstance(self.tree_shape, GrownShape):
            raise ValueError("tree: medusa combines the guesses of its heads by a static tree, not a dynamic one")
        if self.heads < self.max_accepted_tokens:
            raise ValueError(f"num_heads {self.heads}: a draft {self.max_accepted_tokens} deep needs as many heads")
        return self

    @property
    def heads(self) -> int:
        """Heads run in every step."""
        return self.num_heads or self.max_accepted_tokens

    @property
    def lookahead_tokens(self) -> int:
        """0: the heads have no KV (vLLM)."""
        return 0

    def num_draft_passes(self, num_draft_tokens: int) -> int:
        """All heads at once."""
        return min(1, num_draft_tokens)

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """The heads as a model without layers."""
        return medusa_heads(target, self.heads)

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price the heads on the deployment."""
        return MedusaDrafter(cost, self.tree_shape or FixedShape(chain(self.num_speculative_tokens)),
                             KvCompaction.of(deployment) if self.tree else None)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MedusaDrafter:
    """One pass of all heads over the last hidden state of each sequence (vLLM `v1/spec_decode/medusa.py`)."""

    cost: BoundCost
    shape: TreeShape
    compaction: KvCompaction | None

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of the heads, and of compaction after a tree; 0 when nothing is to be drafted."""
        seconds = 0.0
        if self.compaction is not None:
            seconds += self.compaction.seconds(self.shape, work.target.num_draft_tokens)
        if work.num_seqs and work.num_draft_tokens:
            rows = work.num_seqs
            seconds += self.cost.draft_pass_seconds(ForwardPass(rows, rows, rows, 0, NO_ATTENTION, NO_ATTENTION))
        return seconds
