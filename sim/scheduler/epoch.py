"""A stretch of steps that needs no decisions about memory or K: the fast way through most of a run.

While KV blocks suffice and K stays the same, a request's every step is known the moment it is admitted (`Walker`). An
epoch then keeps sums over the batch per future step, so that a step costs a few scalar operations and a request a few
array operations, instead of a dozen array operations per step. Prefill and admission go on inside an epoch, by the
same `Waiting.admit`. When a decision is due (blocks short, another K) the epoch closes: it writes the running list
back, and `Scheduler.schedule` takes over. Bit-identical to stepping: `tests/laws/test_leap.py`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass
from sim.scheduler.plan import StepFacts
from sim.scheduler.schedule import Scheduler
from sim.scheduler.walker import Entry, Walker, walk

Ints = NDArray[np.int64]
Chunk = tuple[Entry, int]


class EpochStep(NamedTuple):
    """One step of an epoch: its pass, what the drafter has to do, and what the recorder wants to know."""

    forward: ForwardPass
    drafting_seqs: int
    drafting_kv: int
    facts: StepFacts
    blocks: int
    admitted: list[int]


class Epoch:
    """Steps from `first_step` on: `next`, then `complete`, and so on; `close` at the end.

    Attributes:
        ended: walkers that are done, for the recorder to collect and clear.
    """

    def __init__(self, scheduler: Scheduler, k: int, first_step: int) -> None:
        self._scheduler, self._k, self._base = scheduler, k, first_step
        self._tokens = np.zeros(4096, np.int64)
        self._blocks = np.zeros(4096, np.int64)
        self._walkers: dict[int, Walker] = {}
        self._done_at: dict[int, list[Walker]] = {}
        self._partial: Entry | None = None
        self._joining: list[Entry] = []
        self._known = 0
        self._new_k: int | None = None
        self._quiet: StepFacts | None = None
        self.ended: list[Walker] = []
        for entry in scheduler.take_running():
            self._register(self._walk(entry, first_step, fresh=0))

    @property
    def count(self) -> int:
        """Requests running."""
        return len(self._walkers) + (self._partial is not None)

    def next(self, step: int) -> EpochStep | None:
        """Schedule the engine step with this index; None (and nothing changed) when a decision is due."""
        scheduler, index = self._scheduler, step - self._base
        budget = scheduler.config.max_num_scheduled_tokens - len(self._walkers) * (1 + self._k)
        needed = int(self._blocks[index]) if index < len(self._blocks) else 0
        chunks: list[Chunk] = []
        if self._partial is not None:
            tokens = min(self._partial.lag, budget)
            held = self._blocks_of_chunk(self._partial, tokens)
            needed += held - self._partial.blocks
            chunks = [(self._partial._replace(blocks=held), tokens)]
            budget -= tokens
        if self._new_k is not None or needed > scheduler.pool.free or budget < 0 or (chunks and tokens < 1):
            return None
        scheduler.pool.take(needed)
        admitted = self._admit(budget, bool(self._walkers or chunks)) if scheduler.waiting.queue else []
        if admitted or chunks:
            return self._describe(chunks + admitted, [entry.row for entry, _ in admitted])
        return self._describe_quiet() if self._walkers else None

    def complete(self, step: int) -> list[int]:
        """The step is done: requests finish and join; returns the rows that finished, in order of admission."""
        scheduler, index = self._scheduler, step - self._base
        self._known += int(self._tokens[index]) if index < len(self._tokens) else 0
        done = self._done_at.pop(step, [])
        for walker in done:
            del self._walkers[walker.entry.row]
            self._known -= walker.final_known
        for entry in self._joining:
            walker = self._walk(entry, step, fresh=1)
            if walker.last_step == step:
                done.append(walker)
            else:
                self._register(walker)
        self._joining = []
        for walker in done:
            scheduler.pool.give_back(int(walker.blocks[-1]))
            scheduler.waiting.leave(walker.entry.row, walker.entry.end)
        self.ended += done
        return [walker.entry.row for walker in done]

    def close(self, step: int) -> list[Walker]:
        """Write the running list back as it is before this engine step; returns the walkers cut short."""
        walkers = list(self._walkers.values())
        entries = [walker.at(step) for walker in walkers]
        k = self._k if self._new_k is None else self._new_k
        self._scheduler.restore_running(entries, self._partial, k)
        return walkers

    def _walk(self, entry: Entry, step: int, fresh: int) -> Walker:
        config = self._scheduler.config
        ahead = self._k + config.lookahead_tokens
        return walk(entry, step, self._k, fresh, self._scheduler.tape_bytes, ahead, config.block_size)

    def _register(self, walker: Walker) -> None:
        """Add a request's future tokens and blocks to the sums per step."""
        entry, tokens = walker.entry, walker.tokens()
        self._walkers[entry.row] = walker
        self._done_at.setdefault(walker.last_step, []).append(walker)
        first = walker.first_step - self._base
        end = first + len(tokens)
        while end > len(self._tokens):
            self._tokens = np.concatenate((self._tokens, np.zeros_like(self._tokens)))
            self._blocks = np.concatenate((self._blocks, np.zeros_like(self._blocks)))
        self._known += entry.known + (int(tokens[0]) if walker.fresh else 0)
        self._tokens[first + walker.fresh : end] += tokens[walker.fresh :]
        self._blocks[first + 1 : end] += walker.blocks[1:] - walker.blocks[:-1]
        self._blocks[first] += int(walker.blocks[0]) - entry.blocks

    def _blocks_of_chunk(self, partial: Entry, tokens: int) -> int:
        """Blocks a prompt holds when its next chunk is scheduled; running requests also reserve look-ahead slots."""
        slots = partial.known - partial.lag + tokens + self._scheduler.config.lookahead_tokens
        return max(partial.blocks, self._scheduler.pool.blocks_for(slots))

    def _admit(self, budget: int, busy: bool) -> list[Chunk]:
        scheduler = self._scheduler
        room = scheduler.config.max_num_seqs - self.count
        if scheduler.waiting.blocked or budget <= 0 or room <= 0:
            return []
        return scheduler.waiting.admit(budget, busy, room)

    def _describe_quiet(self) -> EpochStep:
        """A step of walkers alone; its facts stay the same until somebody comes or goes."""
        scheduler, n, k, known = self._scheduler, len(self._walkers), self._k, self._known
        waiting, facts = len(scheduler.waiting.queue), self._quiet
        if facts is None or facts.running != n or facts.waiting != waiting:
            k_next = scheduler.draft_length.choose(n)
            self._new_k = None if k_next == k else k_next
            facts = self._quiet = StepFacts(n, n, 0, n * (1 + k), n * k, k_next, n, waiting, 0)
        forward = _forward(n, k, known, [], n * (1 + k), n)
        return EpochStep(forward, n, known, facts, scheduler.pool.used, [])

    def _describe(self, chunks: list[Chunk], admitted: list[int]) -> EpochStep:
        """The step of all walkers and these prompt chunks; at most the last chunk leaves its prompt unfinished."""
        scheduler, n, k, known = self._scheduler, len(self._walkers), self._k, self._known
        total = n + len(chunks)
        k_next = scheduler.draft_length.choose(total)
        if not n:
            self._k = k_next
        elif k_next != k:
            self._new_k = k_next
        self._joining = [entry for entry, tokens in chunks if tokens == entry.lag]
        rest = [entry._replace(lag=entry.lag - tokens) for entry, tokens in chunks if tokens < entry.lag]
        self._partial = rest[0] if rest else None
        self._quiet = None
        chunk_tokens = sum(tokens for _, tokens in chunks)
        ones = sum(entry.lag == 1 for entry, _ in chunks)
        num_tokens, emitting = n * (1 + k) + chunk_tokens, n + len(self._joining)
        forward = _forward(n, k, known, chunks, num_tokens, emitting)
        return EpochStep(
            forward=forward,
            drafting_seqs=emitting,
            drafting_kv=known + sum(entry.known for entry in self._joining),
            facts=StepFacts(
                total, emitting, chunk_tokens - ones, num_tokens, n * k, k_next, total, len(scheduler.waiting.queue), 0
            ),
            blocks=scheduler.pool.used,
            admitted=admitted,
        )


def _forward(n: int, k: int, known: int, chunks: list[Chunk], num_tokens: int, emitting: int) -> ForwardPass:
    """N decoding sequences with `known` tokens in all and k drafts each, and prompt chunks."""
    cached, decode, extend = known - n, NO_ATTENTION, NO_ATTENTION
    if k and n:
        tokens = n * (1 + k)
        extend = AttentionLoad(n, tokens, cached + tokens, cached * (1 + k) + tokens * (2 + k) // 2)
    elif n:
        decode = AttentionLoad(n, n, known, known)
    for entry, tokens in chunks:
        context = entry.known - entry.lag
        if tokens == 1:
            seqs, _, read, _ = decode
            decode = AttentionLoad(seqs + 1, seqs + 1, read + context + 1, read + context + 1)
        else:
            pairs = tokens * context + tokens * (tokens + 1) // 2
            seqs, queries, read, before = extend
            extend = AttentionLoad(seqs + 1, queries + tokens, read + context + tokens, before + pairs)
    return ForwardPass(n + len(chunks), num_tokens, emitting + n * k, n * k, decode, extend)


def enter_epoch(scheduler: Scheduler, first_step: int) -> Epoch | None:
    """An epoch from here, or None when the requests' steps cannot be foreseen."""
    k = scheduler.steady_drafts()
    return None if k is None else Epoch(scheduler, k, first_step)
