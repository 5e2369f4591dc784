"""What all chain methods share: K in vLLM's spelling, and the cost of K sequential passes of a small network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from sim.cost.base import NO_ATTENTION, AttentionLoad, BoundCost, ForwardPass
from sim.deployment import Deployment
from sim.draft_length.base import DraftLength
from sim.draft_length.batch_table import BatchRanges, BatchTable, check_ranges
from sim.draft_length.fixed import Fixed
from sim.models.model import Model
from sim.speculation.base import Drafter, DraftWork, SpeculationMethod
from sim.units import PositiveCount


class ChainMethod(SpeculationMethod):
    """A method that drafts one chain of up to K tokens per request.

    Attributes:
        num_speculative_tokens: the largest K; the bonus token of the target is not one of them.
        num_speculative_tokens_per_batch_size: inclusive [first, last, K] ranges by scheduled requests; gaps and the
            tail inherit (vLLM's key of the same name). K = 0 still runs the first pass of a loaded drafter.
    """

    no_effect_keys: ClassVar[frozenset[str]] = frozenset(
        {"revision", "code_revision", "quantization", "max_model_len", "parallel_drafting", "attention_backend"}
    )

    num_speculative_tokens: Annotated[PositiveCount, Field(le=64)]
    num_speculative_tokens_per_batch_size: BatchRanges | None = None

    @model_validator(mode="after")
    def _check_ranges(self) -> "ChainMethod":
        if self.num_speculative_tokens_per_batch_size is not None:
            check_ranges(self.num_speculative_tokens_per_batch_size, self.num_speculative_tokens)
        return self

    @property
    def max_draft_tokens(self) -> int:
        """The largest K this config can ask for."""
        return self.num_speculative_tokens

    @property
    def lookahead_tokens(self) -> int:
        """KV slots for the next drafts: K for drafters with KV of their own (vLLM `num_lookahead_tokens`)."""
        return self.num_speculative_tokens

    @property
    def draft_length(self) -> DraftLength:
        """The table, or always the largest K."""
        ranges = self.num_speculative_tokens_per_batch_size
        return Fixed() if ranges is None else BatchTable(num_speculative_tokens_per_batch_size=ranges)


class AutoregressiveMethod(ChainMethod):
    """A chain drafted by a network: one pass over all that the target just did, then K - 1 passes of one token."""

    draft_tensor_parallel_size: PositiveCount | None = None

    def drafter_tensor_parallel_size(self, tensor_parallel_size: int) -> int:
        """`draft_tensor_parallel_size`, which vLLM allows to be 1 or the target's."""
        return self.draft_tensor_parallel_size or tensor_parallel_size

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price the passes on the deployment."""
        return AutoregressiveDrafter(cost)

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """Shape of the drafting network."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AutoregressiveDrafter:
    """K sequential passes of the drafter's network (vLLM `v1/spec_decode/eagle.py`, `draft_model.py`).

    The first pass takes in every token of the target's pass, prompt chunks and rejected drafts included, which keeps
    the drafter's KV in step; it runs even for K = 0. The others have one token per drafting request.
    """

    cost: BoundCost

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of all drafter passes of one step; 0 when the target's pass is empty."""
        if not work.target.num_tokens:
            return 0.0
        num_seqs, num_tokens, _, _, decode, extend = work.target
        rows = work.num_seqs if work.num_draft_tokens else 0
        first = ForwardPass(num_seqs, num_tokens, rows, 0, decode, extend)
        seconds = self.cost.draft_pass_seconds(first) + self._catch_up_seconds(work.catch_up)
        more = work.num_draft_tokens - 1
        if work.narrowing:
            seconds += sum(self.cost.draft_pass_seconds(_one_token_pass(n, kv)) for n, kv in work.narrowing)
        elif more > 0 and work.num_seqs:
            seconds += more * self.cost.draft_pass_seconds(_mean_pass(work))
        return seconds

    def _catch_up_seconds(self, missed: AttentionLoad) -> float:
        """A prefill of the tokens that the drafter has missed."""
        if not missed.num_tokens:
            return 0.0
        return self.cost.draft_pass_seconds(ForwardPass(missed.num_seqs, missed.num_tokens, 0, 0, NO_ATTENTION, missed))


def _mean_pass(work: DraftWork) -> ForwardPass:
    """The average of passes 2..K: contexts grow by one token per pass, and the price is all but linear in them."""
    n = work.num_seqs
    return _one_token_pass(n, work.kv_tokens + (n * work.num_draft_tokens) // 2)


def _one_token_pass(n: int, cached: int) -> ForwardPass:
    """`n` sequences with one new token each over so many cached ones in all."""
    decode = AttentionLoad(n, n, cached + n, cached + n)
    return ForwardPass(n, n, n, 0, decode, NO_ATTENTION)
