"""What one simulation run leaves behind: columns about requests, output positions and engine steps.

Written by `server.recorder`, read by `metrics` and `experiment`. All times are integer nanoseconds of the
simulated clock.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Status(IntEnum):
    """How a request ended; `UNSENT`: never submitted, because its session had ended at max_model_len."""

    FINISHED = 0
    REJECTED = 1
    UNFINISHED = 2
    UNSENT = 3


@dataclass(frozen=True, eq=False)
class RequestRecord:
    """One row per request of the table, in table order; -1 where the event never happened.

    Attributes:
        prompt_tokens, output_tokens: as in the request table.
        emitted_tokens: output tokens handed out; fewer than `output_tokens` when max_model_len cut the output short, or
            when the request did not finish.
        output_offset: where the row starts in the flat arrays of `RunRecord`.
        class_id: traffic class.
        arrival_ns: when it was submitted to the server.
        first_scheduled_ns: start of the step that first ran it.
        first_token_ns: end of the step that emitted its first token.
        finish_ns: end of the step that emitted its last token.
        status: a `Status` value.
        num_preemptions: times it was preempted.
        recomputed_tokens: tokens prefilled again after preemptions.
        cached_tokens: prompt tokens found in the prefix cache at the first admission.
        shared_tokens: prompt tokens that an earlier request of the table begins with as well.
        replica: server that it was sent to; 0 where it never was.
        session_row: row of the first turn of its session; None when no request belongs to one.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    emitted_tokens: Ints
    output_offset: Ints
    class_id: Ints
    arrival_ns: Ints
    first_scheduled_ns: Ints
    first_token_ns: Ints
    finish_ns: Ints
    status: NDArray[np.int8]
    num_preemptions: Ints
    recomputed_tokens: Ints
    cached_tokens: Ints
    shared_tokens: Ints
    replica: Ints
    session_row: Ints | None = None


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One row per engine step, in order of their starts.

    Attributes:
        replica: server that took it.
        start_ns, duration_ns: the step; steps of one server do not overlap.
        draft_ns, target_ns, host_ns: parts of the duration (they add up to it, except that overlapped host time is
            counted only where it sticks out of the GPU time).
        num_seqs: sequences scheduled.
        num_emitting: sequences that emitted tokens.
        prefill_tokens: scheduled prompt (or recomputed) tokens.
        num_tokens: all scheduled tokens, drafts included.
        draft_tokens, accepted_tokens: drafts verified and accepted in this step, before trimming at the end of outputs.
        emitted_tokens: output tokens handed out.
        num_draft_tokens: K asked of the drafter for the next step.
        running, waiting: requests after the step was scheduled.
        kv_blocks_used: blocks held during the step.
        preemptions: requests preempted while scheduling it.
        op_seconds: (steps, 5) target pass by op group, columns in the order of `sim.cost.base.OP_GROUPS`.
        memory_bound: whether memory bounded the target pass.
        extrapolated: whether the target pass lay outside of what the cost model was given; None when no step did.
    """

    replica: Ints
    start_ns: Ints
    duration_ns: Ints
    draft_ns: Ints
    target_ns: Ints
    host_ns: Ints
    num_seqs: Ints
    num_emitting: Ints
    prefill_tokens: Ints
    num_tokens: Ints
    draft_tokens: Ints
    accepted_tokens: Ints
    emitted_tokens: Ints
    num_draft_tokens: Ints
    running: Ints
    waiting: Ints
    kv_blocks_used: Ints
    preemptions: Ints
    op_seconds: Floats
    memory_bound: Bools
    extrapolated: Bools | None = None


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One arm, one replicate.

    Attributes:
        requests: per request.
        steps: per engine step.
        emission_step: (T,) flat over output positions: index of the step that emitted a chunk *starting* at this
            position, -1 where no chunk starts. A chunk reaches to the next start or to the end of the output.
        drafted: (T,) drafts verified by the step that emitted the chunk starting here (0 elsewhere).
        accepted: (T,) drafts it accepted, before trimming at the end of the output, bonus token excluded.
        num_kv_blocks: size of the KV pools of all servers in blocks.
        block_size: tokens per block.
        num_replicas: servers behind the router.
        tree_depth: the most drafts that a step can accept when token trees are verified; None for chains.
        evictions: cached blocks given up to make room, of those that several requests begin with or that a preempted
            one left behind.
    """

    requests: RequestRecord
    steps: StepRecord
    emission_step: NDArray[np.int32]
    drafted: NDArray[np.uint8]
    accepted: NDArray[np.uint8]
    num_kv_blocks: int
    block_size: int
    num_replicas: int = 1
    tree_depth: int | None = None
    evictions: int = 0
