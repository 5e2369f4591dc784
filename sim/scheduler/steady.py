"""Many steps at once while nothing is decided: every running request decodes with the same K and none can finish.

`steady_run` computes the next steps of such a batch as arrays of shape (steps, requests); the server prices as many of
them as fit before the next event and then calls `commit`. Bit-identical to stepping: `tests/laws/test_leap.py`.
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
        cursor: (steps + 1, n) flat output position where each step's chunk starts; the last row is after the last step.
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
        self.cursor = _walk(scheduler.tape.accepted, running.cursor, k, num_steps)
        grown = self.cursor - self.cursor[0]
        self.known_tokens: list[int] = (int(running.known.sum()) + grown[:-1].sum(axis=1)).tolist()
        needed = running.known + (k + scheduler.config.lookahead_tokens) + grown[:-1]
        self._held = np.maximum(-(-needed // pool.block_size), running.slots // pool.block_size)
        others = pool.used - int(running.slots.sum()) // pool.block_size
        used = others + self._held.sum(axis=1)
        self.blocks_used: list[int] = used[used <= pool.num_blocks].tolist()
        self._grown = grown

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

    def commit(self, num_steps: int) -> None:
        """Carry out the first `num_steps` steps, at least one."""
        running, pool = self._scheduler.running, self._scheduler.pool
        pool.take(self.blocks_used[num_steps - 1] - pool.used)
        running.slots[:] = self._held[num_steps - 1] * pool.block_size
        running.cells[KNOWN : OVER + 1, : running.count] += self._grown[num_steps]


def _walk(accepted: NDArray[np.uint8], cursor: Ints, k: int, num_steps: int) -> Ints:
    """Where each of the next steps starts when every step verifies k drafts, shape (num_steps + 1, n)."""
    if not k:
        return cursor + np.arange(num_steps + 1)[:, None]
    starts = np.empty((num_steps + 1, len(cursor)), np.int64)
    starts[0] = cursor
    for step in range(num_steps):
        np.add(starts[step], np.minimum(accepted.take(starts[step]), k), out=starts[step + 1])
        starts[step + 1] += 1
    return starts


def steady_run(scheduler: Scheduler, max_steps: int) -> SteadyRun | None:
    """Up to `max_steps` steady steps from here, or None when the next step may need a decision."""
    running, config, k = scheduler.running, scheduler.config, scheduler.steady_drafts()
    if k is None:
        return None
    limit = config.long_prefill_token_threshold
    if running.count * (1 + k) > config.max_num_scheduled_tokens or (limit and 1 + k > limit):
        return None
    # No request may end within the run, even if every step accepts all drafts.
    num_steps = min(max_steps, (-int(running.over.max()) - 1) // (k + 1))
    if num_steps < 1:
        return None
    run = SteadyRun(scheduler, k, num_steps)
    return run if len(run) else None
