"""Two rhythms of a network that drafts: one token per pass, or all of them in one. Bound to a cost; no specs here."""

from dataclasses import dataclass

from sim.cost.base import NO_ATTENTION, AttentionLoad, BoundCost, ForwardPass
from sim.speculation.base import DraftWork


@dataclass(frozen=True, slots=True)
class AutoregressiveDrafter:
    """K sequential passes of the drafter's network (vLLM `v1/spec_decode/eagle.py`, `draft_model.py`).

    The first pass takes in every token of the target's pass, prompt chunks and rejected drafts included, which keeps
    the drafter's KV in step; it runs even for K = 0. The others have one token per drafting request.

    Attributes:
        cost: prices of the passes.
        new_slots: tokens that the first pass has per drafting request beyond the target's. Heads that read the target's
            states shift their input by one and need none; a draft model also computes the token just sampled: 1
            (vLLM `max_num_new_slots_for_drafting`).
    """

    cost: BoundCost
    new_slots: int = 0

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of all drafter passes of one step; 0 when the target's pass is empty."""
        if not work.target.num_tokens:
            return 0.0
        rows = work.num_seqs if work.num_draft_tokens else 0
        seconds = self.cost.draft_pass_seconds(following_pass(work, self.new_slots, rows), work.target.num_tokens)
        seconds += catch_up_seconds(self.cost, work)
        more = work.num_draft_tokens - 1
        if work.narrowing:
            seconds += sum(self.cost.draft_pass_seconds(one_token_pass(n, kv)) for n, kv in work.narrowing)
        elif more > 0 and work.num_seqs:
            seconds += more * self.cost.draft_pass_seconds(mean_pass(work))
        return seconds


@dataclass(frozen=True, slots=True)
class ParallelDrafter:
    """One pass that drafts all K tokens: K - 1 mask tokens per request follow what the autoregressive pass would hold.

    vLLM `parallel_drafting`: PARD for draft models, P-EAGLE for EAGLE-3 heads.

    Attributes:
        cost: prices of the passes.
        new_slots: as for `AutoregressiveDrafter`, the masks not counted.
    """

    cost: BoundCost
    new_slots: int = 0

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of the pass; 0 when the target's pass is empty."""
        if not work.target.num_tokens:
            return 0.0
        k = work.num_draft_tokens
        new_slots = self.new_slots + max(0, k - 1)
        drafting = following_pass(work, new_slots, k * work.num_seqs)
        seconds = self.cost.draft_pass_seconds(drafting, work.target.num_tokens)
        return seconds + catch_up_seconds(self.cost, work)


def following_pass(work: DraftWork, new_slots: int, num_logit_rows: int) -> ForwardPass:
    """The drafter's pass over all tokens of the target's, with `new_slots` more for every drafting request."""
    num_seqs, num_tokens, _, _, decode, extend = work.target
    new = new_slots * work.num_seqs if work.num_draft_tokens else 0
    if new:
        pairs = new_slots * work.kv_tokens + work.num_seqs * (new_slots * (new_slots + 1) // 2)
        extend = AttentionLoad(
            num_seqs,
            num_tokens + new,
            decode.kv_tokens_read + extend.kv_tokens_read + new,
            decode.pairs + extend.pairs + pairs,
        )
        decode = NO_ATTENTION
    return ForwardPass(num_seqs, num_tokens + new, num_logit_rows, 0, decode, extend)


def mean_pass(work: DraftWork) -> ForwardPass:
    """The average of passes of one token: contexts grow by one token per pass, and the price is all but linear."""
    n = work.num_seqs
    return one_token_pass(n, work.kv_tokens + (n * work.num_draft_tokens) // 2)


def catch_up_seconds(cost: BoundCost, work: DraftWork) -> float:
    """A prefill of the tokens that the drafter has missed while it stood still."""
    missed = work.catch_up
    if not missed.num_tokens:
        return 0.0
    return cost.draft_pass_seconds(
        ForwardPass(missed.num_seqs, missed.num_tokens, 0, 0, NO_ATTENTION, missed), missed.num_tokens
    )


def one_token_pass(n: int, cached: int) -> ForwardPass:
    """`n` sequences with one new token each over so many cached ones in all."""
    decode = AttentionLoad(n, n, cached + n, cached + n)
    return ForwardPass(n, n, n, 0, decode, NO_ATTENTION)
