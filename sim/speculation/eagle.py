"""EAGLE and EAGLE-3: a decoder layer on the target's hidden states (arXiv 2401.15077, 2503.01840); P-EAGLE."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.models.draft_heads import eagle_head
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod
from sim.speculation.facts import MethodFacts, TypicalAcceptance

_FACTS = MethodFacts(
    drafting="EAGLE-3 projects three target states per new token once; then one pass over the target's new tokens "
    "(prompts and rejected drafts included), then K - 1 passes of one token per request, each through one decoder "
    "layer and an LM head. With `parallel_drafting` (P-EAGLE) one pass only, with K - 1 mask tokens more per request.",
    cpu="launches only",
    acceptance_kinds=(
        "regime", "sequence_replay", "per_position", "per_depth", "length", "histogram", "iid", "table_by_k",
    ),
    engines={
        "vLLM": "`method: eagle` or `eagle3`; `parallel_drafting: true` for P-EAGLE",
        "SGLang": "`--speculative-algorithm EAGLE` or `EAGLE3`, `--speculative-eagle-topk 1` for chains",
        "TensorRT-LLM": "`EagleDecodingConfig`, `Eagle3DecodingConfig`",
    },
    sources=(
        "EAGLE, arXiv 2401.15077",
        "EAGLE-3, arXiv 2503.01840",
        "P-EAGLE, arXiv 2602.01469",
        "vLLM `v1/spec_decode/eagle.py`, `llm_base_proposer.py`, `models/llama_eagle3.py`",
    ),
    typical=(
        TypicalAcceptance("EAGLE-3, Llama-3.1-8B, MT-Bench, K=3, T=0", 2.60, "vLLM test baselines"),
        TypicalAcceptance("EAGLE-3, Qwen3-8B, MT-Bench, K=3, T=0", 2.26, "vLLM test baselines"),
        TypicalAcceptance("EAGLE trace, Llama-3.1-8B, GSM8K, K=3, T=0", 2.40, "SpecDecode-Bench, arXiv 2601.11580"),
        TypicalAcceptance("EAGLE trace, Llama-3.1-8B, ShareGPT, K=3, T=0", 2.29, "SpecDecode-Bench, arXiv 2601.11580"),
        TypicalAcceptance("P-EAGLE (4 layers), gpt-oss-120b, MT-Bench, K=5",
                          2.68, "card of amazon/gpt-oss-120b-p-eagle"),
        TypicalAcceptance("P-EAGLE (4 layers), gpt-oss-120b, HumanEval, K=5",
                          3.15, "card of amazon/gpt-oss-120b-p-eagle"),
    ),
)  # fmt: skip


@SPECULATION.register
class Eagle(AutoregressiveMethod):
    """The head's shape follows from the target's.

    Attributes:
        model: name of the head; a label only, since the shape is derived.
        parallel_drafting: the head was trained to draft all tokens in one pass (P-EAGLE; `eagle3` only).
        draft_layers: decoder layers of the head. Published EAGLE and EAGLE-3 heads have one, P-EAGLE heads four.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "eagle3", "num_speculative_tokens": 3},
                {
                    "method": "eagle3",
                    "num_speculative_tokens": 59,
                    "tree": {"kind": "dynamic", "depth": 8, "top_k": 10},
                },
                {"method": "eagle", "num_speculative_tokens": 25, "tree": {"kind": "named", "name": "eagle_25"}},
                {
                    "method": "eagle",
                    "num_speculative_tokens": 5,
                    "num_speculative_tokens_per_batch_size": [[1, 32, 5], [33, 128, 2], [129, 1024, 0]],
                },
                {"method": "eagle3", "num_speculative_tokens": 7, "parallel_drafting": True, "draft_layers": 4},
            ]
        }
    )

    method: Literal["eagle", "eagle3"]
    model: str | None = None
    parallel_drafting: bool = False
    draft_layers: int = Field(1, ge=1, le=16)

    @model_validator(mode="after")
    def _heads_that_exist(self) -> Self:
        if self.method == "eagle" and self.parallel_drafting:
            raise ValueError("parallel_drafting needs method eagle3: P-EAGLE heads are trained on its three states")
        if self.parallel_drafting and self.tree is not None:
            raise ValueError("parallel_drafting drafts a chain in one pass; a tree needs a pass per level: drop one")
        return self

    @property
    def drafts_in_parallel(self) -> bool:
        """Whether one pass drafts all tokens."""
        return self.parallel_drafting

    @property
    def use_eagle(self) -> bool:
        """Always: the hidden states of cached tokens are gone."""
        return True

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """Decoder layers of the target's shape, their projection and LM head."""
        return eagle_head(target, self.method, self.draft_layers)
