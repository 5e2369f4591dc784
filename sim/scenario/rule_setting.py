"""What the K rule of an arm may know of it: step times as an engine would measure them, acceptance, and the future."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sim.acceptance.base import Tape
from sim.acceptance.confidence import confident_drafts
from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass
from sim.draft_length.base import Floats, Ints, Setting
from sim.rng import Streams
from sim.server.pricing import StepPricer
from sim.speculation.base import DraftWork
from sim.workload.requests import RequestTable

StepSeconds = Callable[[int, int, int, int], float]


class OffLine(NamedTuple):
    """What an engine's operator could measure before the run.

    Attributes:
        max_draft_tokens, max_num_seqs: limits of the arm.
        step_seconds: see `steady_step_seconds`.
        survival: K -> unconditional acceptance rates of the main traffic, shape (K,).
    """

    max_draft_tokens: int
    max_num_seqs: int
    step_seconds: StepSeconds
    survival: Callable[[int], Floats]


def rule_setting(known: OffLine, requests: RequestTable, tape: Tape, streams: Streams) -> Setting:
    """What there is to know in one run."""
    k = known.max_draft_tokens

    def verified(cursor: Ints, drafts: int) -> Ints:
        if tape.proposed is None:
            return np.full(len(cursor), drafts)
        return np.minimum(tape.proposed.take(cursor), drafts).astype(np.int64)

    return Setting(
        max_draft_tokens=k,
        max_num_seqs=known.max_num_seqs,
        num_requests=len(requests),
        step_seconds=known.step_seconds,
        survival=known.survival,
        verified=verified,
        taken=tape.taken,
        confident=lambda at_least, sharpness: confident_drafts(tape, requests, k, at_least, sharpness, streams),
    )


def steady_step_seconds(pricer: StepPricer, overlapped: bool) -> StepSeconds:
    """Seconds of a decode step: (sequences, their KV tokens, drafts verified in all, drafter passes after it).

    Args:
        pricer: of the arm, without the cost of a switch.
        overlapped: the host works beside the GPU.
    """

    def seconds(num_seqs: int, kv_tokens: int, drafts: int, passes: int) -> float:
        work = DraftWork(steady_pass(num_seqs, kv_tokens, drafts), num_seqs, kv_tokens, passes)
        cost = pricer.price(work)
        gpu_ns = cost.target_ns + cost.draft_ns
        hidden = overlapped and not pricer.host_is_remainder
        return 1e-9 * (max(gpu_ns, cost.host_ns) if hidden else gpu_ns + cost.host_ns)

    return seconds


def steady_pass(num_seqs: int, kv_tokens: int, drafts: int) -> ForwardPass:
    """A target pass in which everybody decodes: `drafts` verified in all, spread evenly."""
    tokens = num_seqs + drafts
    if not drafts:
        load = AttentionLoad(num_seqs, num_seqs, kv_tokens + num_seqs, kv_tokens + num_seqs)
        return ForwardPass(num_seqs, num_seqs, num_seqs, 0, load, NO_ATTENTION)
    pairs = round(tokens * kv_tokens / num_seqs + tokens * (tokens / num_seqs + 1) / 2)
    load = AttentionLoad(num_seqs, tokens, kv_tokens + tokens, pairs)
    return ForwardPass(num_seqs, tokens, tokens, drafts, NO_ATTENTION, load)
