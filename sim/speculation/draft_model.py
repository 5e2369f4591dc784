"""A separate, smaller model drafts: its own weights and KV, prefill of every prompt; K passes, or one (PARD)."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.speculation.base import SPECULATION
from sim.speculation.chain import AutoregressiveMethod
from sim.speculation.facts import MethodFacts, TypicalAcceptance

_FACTS = MethodFacts(
    drafting="One pass over the target's new tokens (prompts included) plus the token just sampled, then K - 1 passes "
    "of one token per request. With `parallel_drafting` one pass only, with K - 1 mask tokens more per request.",
    cpu="launches only",
    acceptance_kinds=("iid", "per_position", "per_depth", "length", "histogram", "regime", "table_by_k"),
    engines={
        "vLLM": "`method: draft_model`; `parallel_drafting: true` for PARD checkpoints",
        "SGLang": "`--speculative-algorithm STANDALONE`",
        "TensorRT-LLM": "`DraftTargetDecodingConfig`",
        "Hugging Face": "`assistant_model`",
        "llama.cpp": "`--model-draft`",
    },
    sources=(
        "Leviathan et al., arXiv 2211.17192",
        "Chen et al., arXiv 2302.01318",
        "PARD, arXiv 2504.18583",
        "vLLM `v1/spec_decode/draft_model.py`, `llm_base_proposer.py`, `config/speculative.py`",
    ),
    typical=(
        TypicalAcceptance("generic small: Vicuna-13B with a 68M model (1:190), MT-Bench, T=0", 2.27,
                          "EAGLE-3, arXiv 2503.01840, Table 1 (row SpS)"),
        TypicalAcceptance("generic small: Vicuna-13B with a 68M model, HumanEval, T=0", 2.57,
                          "EAGLE-3, arXiv 2503.01840, Table 1 (row SpS)"),
        TypicalAcceptance("same family: T5-XXL 11B with T5-small 77M (1:143), K=7, WMT EnDe, T=0, from alpha 0.75",
                          3.60, "arXiv 2211.17192, Table 2 with Eq. 1"),
        TypicalAcceptance("same family: T5-XXL 11B with T5-large 800M (1:14), K=7, WMT EnDe, T=0, from alpha 0.82",
                          4.42, "arXiv 2211.17192, Table 2 with Eq. 1"),
        TypicalAcceptance("same architecture: Llama-2-7B-32K with TinyLlama-1.1B (1:6), K=2, PG-19, T=0", 2.19,
                          "MagicDec, arXiv 2408.11049, Table 3"),
    ),
    remarks=(
        "No figure could be traced for distilled drafters, for earlier checkpoints of the target, or for PARD by K: "
        "measure them.",
    ),
)  # fmt: skip


@SPECULATION.register
class DraftModel(AutoregressiveMethod):
    """A smaller model with weights and KV of its own.

    Attributes:
        model: catalogue id, Hugging Face id or path to a `config.json` of the draft model.
        parallel_drafting: the model was trained to draft all tokens in one pass, with mask tokens (PARD).
        use_heterogeneous_vocab: the draft model's vocabulary may differ from the target's; drafts are mapped between
            them, which costs nothing here. How many tokens both share belongs to the acceptance.
    """

    facts: ClassVar[MethodFacts | None] = _FACTS
    new_slots: ClassVar[int] = 1

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"method": "draft_model", "model": "qwen3-0.6b", "num_speculative_tokens": 4},
                {
                    "method": "draft_model",
                    "model": "llama-3.2-1b",
                    "num_speculative_tokens": 8,
                    "parallel_drafting": True,
                },
            ]
        }
    )

    method: Literal["draft_model"] = "draft_model"
    model: str
    parallel_drafting: bool = False
    use_heterogeneous_vocab: bool = False

    @property
    def drafts_in_parallel(self) -> bool:
        """Whether one pass drafts all tokens."""
        return self.parallel_drafting

    @property
    def needs_equal_vocabulary(self) -> bool:
        """True unless drafts are mapped (vLLM `verify_equal_vocab_size_if_draft_model`)."""
        return not self.use_heterogeneous_vocab

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """The draft model's own shape; raises ScenarioError when `model` names none."""
        return find_model(self.model, base_dir)
