"""Self-speculation: the target's first layers draft, verification computes the others (LayerSkip, arXiv 2404.16710)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.cost.base import NO_ATTENTION, OP_GROUPS, AttentionLoad, BoundCost, ForwardPass, PassCost, PassPrice
from sim.deployment import Deployment
from sim.models.draft_heads import first_layers
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork
from sim.speculation.chain import ChainMethod
from sim.speculation.drafters import mean_pass
from sim.speculation.facts import MethodFacts
from sim.units import PositiveCount

_NO_VLLM: Mapping[str, str] = {
    "Hugging Face": "`assistant_early_exit`",
    "vLLM, SGLang, TensorRT-LLM": "not available",
}

_FACTS = MethodFacts(
    drafting="K passes of one token per request through the first `exit_layer` layers and the LM head. They write the "
    "target's own KV, and verification computes only the other layers of the drafted tokens.",
    cpu="launches only",
    acceptance_kinds=("iid", "per_position", "per_depth", "length", "histogram"),
    engines=_NO_VLLM,
    sources=(
        "LayerSkip, arXiv 2404.16710",
        "facebookresearch/LayerSkip `self_speculation/llama_model_utils.py` (`forward_remainder`)",
    ),
    remarks=(
        "The target must have been trained for early exit.",
        "No acceptance by exit layer and K could be traced: measure it.",
    ),
)


@SPECULATION.register
class LayerSkip(ChainMethod):
    """The target drafts with its own first layers: no weights and no KV beside its own.

    Attributes:
        exit_layer: how many layers draft.
    """

    no_effect_keys: ClassVar[frozenset[str]] = ChainMethod.no_effect_keys | {"model", "draft_tensor_parallel_size"}
    facts: ClassVar[MethodFacts | None] = _FACTS
    shares_target: ClassVar[bool] = True

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"method": "layerskip", "exit_layer": 8, "num_speculative_tokens": 4}]}
    )

    method: Literal["layerskip"] = "layerskip"
    exit_layer: PositiveCount

    def num_draft_passes(self, num_draft_tokens: int) -> int:
        """K; none for K = 0, since there is no other KV to keep in step."""
        return num_draft_tokens

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """The first layers of the target; raises ScenarioError when it has no more."""
        return first_layers(target, self.exit_layer)

    def verification_cost(self, cost: BoundCost) -> BoundCost:
        """The target's passes without what drafting has computed already."""
        return replace(cost, target=RemainingLayers(cost.target, cost.draft))

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price the passes on the deployment."""
        return EarlyExitDrafter(cost)


@dataclass(frozen=True, slots=True)
class EarlyExitDrafter:
    """K passes of one token per request; the first takes the token just sampled."""

    cost: BoundCost

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of all passes of one step; 0 when nothing is drafted."""
        if not work.num_seqs or not work.num_draft_tokens:
            return 0.0
        return work.num_draft_tokens * self.cost.draft_pass_seconds(mean_pass(work))


class RemainingLayers:
    """Passes of a target whose first layers have been through all but one of each verified sequence's tokens.

    The K passes of drafting took the token just sampled and the first K - 1 drafts through the first layers, so there
    verification has one token per sequence, the last draft, and the other layers have all 1 + K. The price is the
    target's, less those layers over all tokens, plus those layers over what is left (prompts are untouched).

    Args:
        target: prices whole passes.
        first: prices passes of the first layers.
    """

    __slots__ = ("_first", "_target")

    def __init__(self, target: PassCost, first: PassCost) -> None:
        self._target, self._first = target, first

    def price(self, forward: ForwardPass) -> PassPrice:
        """Time of the pass by op group."""
        whole = self._target.price(forward)
        if not forward.num_draft_tokens:
            return whole
        all_tokens = self._first.price(forward._replace(num_logit_rows=0))
        left = self._first.price(without_drafted(forward))
        changed = {
            group: getattr(whole, group) - getattr(all_tokens, group) + getattr(left, group) for group in OP_GROUPS
        }
        return whole._replace(seconds=sum(changed.values()), **changed)


def without_drafted(forward: ForwardPass) -> ForwardPass:
    """The tokens of a pass that the first layers have not seen; KV is read as before.

    Query-key pairs of verified sequences and of prompt chunks are known only together and shrink with their tokens:
    exact to K/2 in the context where nothing is prefilled.
    """
    decode, extend, drafted = forward.decode, forward.extend, forward.num_draft_tokens
    left = extend.num_tokens - drafted
    pairs = round(extend.pairs * left / extend.num_tokens)
    rest = AttentionLoad(extend.num_seqs, left, extend.kv_tokens_read, pairs)
    if left == extend.num_seqs:  # one query each: attention decodes
        decode, rest = AttentionLoad(*(a + b for a, b in zip(decode, rest, strict=True))), NO_ATTENTION
    return ForwardPass(forward.num_seqs, forward.num_tokens - drafted, 0, 0, decode, rest)
