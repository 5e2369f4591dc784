"""Many steps at once while nothing is decided: every running request decodes with the same K, until the first is done.

`steady_run` computes the next steps of such a batch as arrays of shape (steps, requests); the server prices as many of
them as fit before the next event and then calls `commit`. A request may end in the last step of a run only.
Bit-identical to stepping: `tests/laws/test_leap.py`.
"""

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass
from sim.scheduler.running import KNOWN, OVER
from sim.scheduler.schedule import Scheduler

Ints = NDArray[np.int64]


class SteadyRun:
    """The next steps of an unchanging batch of n requests with k drafts each.

    Attributes:
        cursor: (steps, n) flat output position where each step's chunk starts.
        known_tokens: (steps,) sum of known tokens before each step.
        blocks_used: (steps,) blocks of the pool held during each step.
        num_draft_tokens: k.
        drafting_seqs: requests that draft.
    """

    def __init__(self, scheduler: Scheduler, k: int, num_steps: int) -> None:
        self._scheduler = scheduler
        running, pool = scheduler.running, scheduler.pool
        self.num_draft_tokens, self.num_seqs = k, running.count
        self.drafting_seqs = int(running.speculates.sum())
        self.cursor, self._grown = _walk(scheduler.tape.accepted, running.cursor, running.over, k, num_steps)
        before = self._grown[:-1]
        self.known_tokens: list[int] = (int(running.known.sum()) + before.sum(axis=1)).tolist()
        needed = running.known + (k + scheduler.config.lookahead_tokens + pool.block_size - 1) + before
        self._held = np.maximum(needed // pool.block_size, running.slots // pool.block_size)
        others = pool.used - int(running.slots.sum()) // pool.block_size
        used = others + self._held.sum(axis=1)
        self.blocks_used: list[int] = used[used <= pool.num_blocks].tolist()

    def __len__(self) -> int:
        return len(self.blocks_used)

    def forward(self, step: int) -> ForwardPass:
        """The target pass of this step."""
        n, k, known = self.num_seqs, self.num_draft_tokens, self.known_tokens[step]
        if not k:
            return ForwardPass(n, n, n, 0, AttentionLoad(n, n, known, known), NO_ATTENTION)
        tokens, cached = n * (1 + k), known - n
        pairs = cached * (1 + k) + n * (1 + k) * (2 + k) // 2
        return ForwardPass(n, tokens, tokens, n * k, NO_ATTENTION, AttentionLoad(n, tokens, cached + tokens, pairs))

    def commit(self, num_steps: int) -> list[int]:
        """Carry out the first `num_steps` steps, at least one; returns the rows that finish with the last of them."""
        running, pool = self._scheduler.running, self._scheduler.pool
        pool.take(self.blocks_used[num_steps - 1] - pool.used)
        running.slots[:] = self._held[num_steps - 1] * pool.block_size
        running.cells[KNOWN : OVER + 1, : running.count] += np.minimum(self._grown[num_steps], -running.over)
        return self._scheduler.retire_finished()


def _walk(accepted: NDArray[np.uint8], cursor: Ints, over: Ints, k: int, num_steps: int) -> tuple[Ints, Ints]:
    """Steps that verify k drafts each, up to `num_steps` or to the first in which a request is done.

    Returns:
        (steps, n) output positions where the chunks start, and (steps + 1, n) tokens emitted before each step.
    """
    if not k:
        grown = np.arange(min(num_steps, -int(over.max())) + 1)[:, None] + np.zeros_like(cursor)
        return cursor + grown[:-1], grown
    starts = np.empty((num_steps + 1, len(cursor)), np.int64)
    starts[0] = cursor
    end, step, open_ended = cursor - over, 0, True
    while step < num_steps and open_ended:
        np.add(np.minimum(accepted.take(starts[step]), k), 1 + starts[step], out=starts[step + 1])
        step += 1
        open_ended = bool((starts[step] < end).all())
    return starts[:step], starts[: step + 1] - cursor


def steady_run(scheduler: Scheduler, max_steps: int) -> SteadyRun | None:
    """Up to `max_steps` steady steps from here, or None when the next step may need a decision."""
    running, config, k = scheduler.running, scheduler.config, scheduler.steady_drafts()
    if k is None:
        return None
    limit = config.long_prefill_token_threshold
    if running.count * (1 + k) > config.max_num_scheduled_tokens or (limit and 1 + k > limit):
        return None
    run = SteadyRun(scheduler, k, max_steps)
    return run if len(run) else None
