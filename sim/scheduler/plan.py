"""What the scheduler hands to the server each step, and what comes back when the step is done."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass
from sim.scheduler.running import Running
from sim.speculation.base import DraftWork

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of one engine, in vLLM's words (`vllm/config/scheduler.py`, `cache.py`).

    Attributes:
        max_num_scheduled_tokens: the token budget of a step.
        long_prefill_token_threshold: cap on the tokens of one request per step; 0 = none.
        scheduler_reserve_full_isl: admit a request only when blocks for its whole known length are free.
        watermark: share of all blocks that an admission must leave free while another request runs.
        separate_prefill: a step is either prefill or decode, and prefill goes first (SGLang without mixed chunks).
        reserve_output: an admission takes the blocks of the whole output too, so that nobody is preempted
            (TensorRT-LLM's `GUARANTEED_NO_EVICT`). The output length stands for the client's `max_tokens`.
        draft_slots: KV slots that the drafts under verification may take; `reserve_output` takes them as well.
        batch_wait_timeout_iters, batch_wait_max_tokens_ratio: prompts wait for so many steps at most, or until the step
            fills this share of the budget (`batch_wait.py`).
        lookahead_tokens: KV slots reserved per running request for its next drafts.
        enable_prefix_caching: full blocks can be shared, and found again until they are evicted.
        use_eagle: a prefix hit loses its last block, which an EAGLE-like drafter has to see again.
    """

    max_num_seqs: int
    max_num_scheduled_tokens: int
    max_model_len: int
    block_size: int
    num_blocks: int
    lookahead_tokens: int = 0
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    separate_prefill: bool = False
    reserve_output: bool = False
    draft_slots: int = 0
    batch_wait_timeout_iters: int = 0
    batch_wait_max_tokens_ratio: float = 0.0
    enable_prefix_caching: bool = False
    use_eagle: bool = False

    @property
    def waits_for_batch(self) -> bool:
        """Whether prompts are ever held back while requests decode."""
        return self.batch_wait_timeout_iters > 0 and self.batch_wait_max_tokens_ratio > 0


class StepFacts(NamedTuple):
    """What a step held; names as in `StepRecord`."""

    num_seqs: int
    num_emitting: int
    prefill_tokens: int
    num_tokens: int
    draft_tokens: int
    num_draft_tokens: int
    running: int
    waiting: int
    preemptions: int


@dataclass(slots=True)
class StepPlan:
    """One scheduled step. Positions are those of the running list after scheduling.

    Attributes:
        num_tokens: (n,) tokens granted to each running request; 0 where the budget ran out.
        emitting: positions whose prompt is complete after this step: they emit 1 + accepted tokens.
        drafts: drafts under verification, one entry per emitting request.
        forward: the target pass.
        prefill_tokens: tokens of prompts and of recomputation.
        drafting_seqs: requests that will get drafts.
        drafting_kv: sum of their known lengths.
        admitted: rows that entered the running list in this step.
        preempted: rows that left it, in order.
        k_next: drafts to propose per request for the next step; the largest, when requests differ.
        drafts_next: the same, or one entry per emitting request.
        passes: drafter passes; equal to `k_next` unless the drafter tries more than it proposes.
        narrowing, catch_up: as in `DraftWork`.
    """

    num_tokens: Ints
    emitting: slice | Ints
    drafts: Ints
    forward: ForwardPass
    prefill_tokens: int
    drafting_seqs: int
    drafting_kv: int
    admitted: list[int]
    preempted: list[int]
    k_next: int = 0
    drafts_next: int | Ints = 0
    passes: int = 0
    narrowing: tuple[tuple[int, int], ...] = ()
    catch_up: AttentionLoad = NO_ATTENTION

    @property
    def work(self) -> DraftWork:
        """The step's target pass, and what the drafter does after it."""
        drafting = self.drafting_seqs, self.drafting_kv, self.passes
        return DraftWork(self.forward, *drafting, self.narrowing, self.catch_up)

    @property
    def verifying(self) -> NDArray[np.bool_]:
        """Which of the emitting requests decode, as opposed to those that finish a prompt."""
        decoding: NDArray[np.bool_] = self.num_tokens[self.emitting] == self.drafts + 1
        return decoding


def plan_step(running: Running, granted: Ints, admitted: list[int], preempted: list[int]) -> StepPlan:
    """Describe the step and mark the granted tokens as computed; what to draft after it is left open."""
    context = running.known - running.lag
    scheduled = granted > 0
    num_decoding = int(np.count_nonzero((running.lag == 1) & scheduled))
    running.lag -= granted
    emits = (running.lag <= 0) & scheduled
    num_emitting = int(np.count_nonzero(emits))
    everyone = num_emitting == running.count
    sel: slice | Ints = slice(0, running.count) if everyone else np.flatnonzero(emits)
    num_tokens = int(granted.sum())
    if not everyone and not scheduled.all():
        decode, extend = attention_loads(context[scheduled], granted[scheduled])
    else:
        decode, extend = attention_loads(context, granted)
    drafts = -running.lag[sel]
    num_drafts = int(drafts.sum())
    num_seqs = decode.num_seqs + extend.num_seqs
    forward = ForwardPass(num_seqs, num_tokens, num_emitting + num_drafts, num_drafts, decode, extend)
    drafting = running.speculates[sel]
    return StepPlan(
        num_tokens=granted,
        emitting=sel,
        drafts=drafts,
        forward=forward,
        prefill_tokens=num_tokens - num_drafts - num_decoding,
        drafting_seqs=int(drafting.sum()),
        drafting_kv=int(running.known[sel] @ drafting),
        admitted=admitted,
        preempted=preempted,
    )


class Emitted(NamedTuple):
    """What a step produced; arrays over the emitting requests.

    Attributes:
        rows: request table rows.
        cursor: flat output position of the first token of each chunk.
        tokens: output tokens, trimmed at the end of the output.
        drafts: drafts verified.
        accepted: drafts accepted, before trimming.
        finished: rows that are done.
    """

    rows: Ints
    cursor: Ints
    tokens: Ints
    drafts: Ints
    accepted: Ints
    finished: list[int]


def attention_loads(context: Ints, num_tokens: Ints) -> tuple[AttentionLoad, AttentionLoad]:
    """Split a pass into sequences with one new token and with several.

    Args:
        context: (n,) tokens already in the KV cache.
        num_tokens: (n,) new tokens, all >= 1.
    """
    several = num_tokens > 1
    num_several = int(np.count_nonzero(several))
    if num_several == 0:
        return _single(len(context), int(context.sum())), _several(context[:0], num_tokens[:0])
    if num_several == len(context):
        return _single(0, 0), _several(context, num_tokens)
    extend = _several(context[several], num_tokens[several])
    num_single = len(context) - num_several
    cached = int(context.sum()) - (extend.kv_tokens_read - extend.num_tokens)
    return _single(num_single, cached), extend


def _single(num_seqs: int, cached: int) -> AttentionLoad:
    return AttentionLoad(num_seqs, num_seqs, cached + num_seqs, cached + num_seqs)


def _several(context: Ints, num_tokens: Ints) -> AttentionLoad:
    if not len(context):
        return AttentionLoad(0, 0, 0, 0)
    total = int(num_tokens.sum())
    pairs = int(num_tokens @ context) + (int(num_tokens @ num_tokens) + total) // 2
    return AttentionLoad(len(context), total, int(context.sum()) + total, pairs)
