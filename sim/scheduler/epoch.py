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
from sim.draft_length.base import TableRule
from sim.scheduler.plan import StepFacts
from sim.scheduler.schedule import Scheduler
from sim.scheduler.walker import BLOCKS, DRAFTING, DRAFTS, EMITTED, NUM_SUMS, Entry, Walker
from sim.speculation.base import DraftWork

Ints = NDArray[np.int64]
Chunk = tuple[Entry, int]

#: A step in which nobody decodes.
NOTHING = [0] * NUM_SUMS


class EpochStep(NamedTuple):
    """One step of an epoch: its pass, what the drafter has to do, and what the recorder wants to know."""

    work: DraftWork
    facts: StepFacts
    blocks: int
    admitted: list[int]


class Epoch:
    """Steps from `first_step` on: `next`, then `complete`, and so on; `close` at the end.

    Attributes:
        ended: walkers that are done, for the recorder to collect and clear.
    """

    def __init__(self, scheduler: Scheduler, table: TableRule, k: int, first_step: int) -> None:
        self._scheduler, self._table, self._k, self._base = scheduler, table, k, first_step
        self._step = first_step
        self._future = np.zeros((4096, len(NOTHING)), np.int64)
        self._now = NOTHING
        self._walkers: dict[int, Walker] = {}
        self._done_at: dict[int, list[Walker]] = {}
        self._partial: Entry | None = None
        self._joining: list[Entry] = []
        self._known = self._drafting_known = self._speculating = 0
        self._new_k: int | None = None
        self._quiet: StepFacts | None = None
        self.ended: list[Walker] = []
        self._keeps_up = scheduler.proposer.sync is not None
        scheduler.cache.progress = self._progress
        for entry in scheduler.take_running():
            self._register(self._scheduler.track.walk(entry, first_step, k, fresh=0))

    @property
    def count(self) -> int:
        """Requests running."""
        return len(self._walkers) + (self._partial is not None)

    def next(self, step: int) -> EpochStep | None:
        """Schedule the engine step with this index; None (and nothing changed) when a decision is due."""
        scheduler, index, self._step = self._scheduler, step - self._base, step
        self._now = self._future[index].tolist() if index < len(self._future) else NOTHING
        budget = scheduler.config.max_num_scheduled_tokens - len(self._walkers) - self._now[DRAFTS]
        needed = self._now[BLOCKS]
        chunks: list[Chunk] = []
        if self._partial is not None:
            tokens = min(self._partial.lag, budget)
            held = self._blocks_of_chunk(self._partial, tokens)
            needed += held - self._partial.blocks
            settled = self._partial.known - self._partial.lag + tokens
            chunks = [(self._partial._replace(blocks=held, settled=settled), tokens)]
            budget -= tokens
        if self._new_k is not None or needed > scheduler.pool.free or budget < 0 or (chunks and tokens < 1):
            return None
        scheduler.pool.take(needed)
        if chunks:
            scheduler.cache.fill(chunks[0][0].row, chunks[0][0].settled)
        admitted = self._admit(budget, bool(self._walkers or chunks)) if scheduler.waiting.queue else []
        if admitted or chunks:
            return self._describe(chunks + admitted, [entry.row for entry, _ in admitted])
        return self._describe_quiet() if self._walkers else None

    def complete(self, step: int) -> list[int]:
        """The step is done: requests finish and join; returns the rows that finished, in order of admission."""
        scheduler = self._scheduler
        self._known += self._now[EMITTED]
        self._drafting_known += self._now[DRAFTING]
        done = self._done_at.pop(step, [])
        for walker in done:
            del self._walkers[walker.entry.row]
            self._count(walker.entry, -1, walker.final_known)
        for entry in self._joining:
            walker = scheduler.track.walk(entry, step, self._k, fresh=1)
            if walker.last_step == step:
                done.append(walker)
            else:
                self._register(walker)
        self._joining = []
        for walker in done:
            settled = walker.settled_before(step + 1)
            scheduler.cache.leave(walker.entry.row, int(walker.blocks[-1]), settled)
            scheduler.waiting.leave(walker.entry.row, walker.entry.end)
        self.ended += done
        return [walker.entry.row for walker in done]

    def close(self, step: int) -> list[Walker]:
        """Write the running list back as it is before this engine step; returns the walkers cut short."""
        self._scheduler.cache.progress = None
        walkers = list(self._walkers.values())
        entries = [walker.at(step) for walker in walkers]
        k = self._k if self._new_k is None else self._new_k
        self._scheduler.restore_running(entries, self._partial, k)
        return walkers

    def _register(self, walker: Walker) -> None:
        """Add a request's future to the sums per step."""
        entry, fresh, loads = walker.entry, walker.fresh, walker.loads()
        self._walkers[entry.row] = walker
        self._done_at.setdefault(walker.last_step, []).append(walker)
        first = walker.first_step - self._base
        end = first + len(loads)
        while end > len(self._future):
            self._future = np.concatenate((self._future, np.zeros_like(self._future)))
        self._future[first + fresh : end] += loads[fresh:]
        self._count(entry, 1, entry.known + fresh)

    def _progress(self, row: int) -> int | None:
        """Final tokens of a decoding request, as the step being scheduled sees them."""
        walker = self._walkers.get(row)
        return None if walker is None else walker.at(self._step).known

    def _count(self, entry: Entry, one: int, known: int) -> None:
        """A request joins (`one` = 1) or leaves (-1) the walkers with this many known tokens."""
        self._known += one * known
        self._drafting_known += one * known * entry.speculates
        self._speculating += one * entry.speculates

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
        scheduler, n, drafts = self._scheduler, len(self._walkers), self._now[DRAFTS]
        waiting, facts = len(scheduler.waiting.queue), self._quiet
        if facts is None or facts.running != n or facts.waiting != waiting or facts.draft_tokens != drafts:
            k_next = self._table.at(n)
            self._new_k = None if k_next == self._k else k_next
            facts = self._quiet = StepFacts(n, n, 0, n + drafts, drafts, k_next, n, waiting, 0)
        forward = _forward(n, self._known, self._now, [], n)
        missed = self._keep_up(facts.num_draft_tokens, []) if self._keeps_up else NO_ATTENTION
        work = DraftWork(forward, self._speculating, self._drafting_known, facts.num_draft_tokens, (), missed)
        return EpochStep(work, facts, scheduler.pool.used, [])

    def _describe(self, chunks: list[Chunk], admitted: list[int]) -> EpochStep:
        """The step of all walkers and these prompt chunks; at most the last chunk leaves its prompt unfinished."""
        scheduler, n, drafts = self._scheduler, len(self._walkers), self._now[DRAFTS]
        total = n + len(chunks)
        k_next = self._table.at(total)
        if not n:
            self._k = k_next
        elif k_next != self._k:
            self._new_k = k_next
        self._joining = [entry for entry, tokens in chunks if tokens == entry.lag]
        rest = [entry._replace(lag=entry.lag - tokens) for entry, tokens in chunks if tokens < entry.lag]
        self._partial = rest[0] if rest else None
        self._quiet = None
        chunk_tokens = sum(tokens for _, tokens in chunks)
        ones = sum(entry.lag == 1 for entry, _ in chunks)
        emitting = n + len(self._joining)
        forward = _forward(n, self._known, self._now, chunks, emitting)
        work = DraftWork(
            forward,
            self._speculating + sum(entry.speculates for entry in self._joining),
            self._drafting_known + sum(entry.known * entry.speculates for entry in self._joining),
            k_next,
            (),
            self._keep_up(k_next, chunks),
        )
        return EpochStep(
            work=work,
            facts=StepFacts(
                total,
                emitting,
                chunk_tokens - ones,
                forward.num_tokens,
                drafts,
                k_next,
                total,
                len(scheduler.waiting.queue),
                0,
            ),
            blocks=scheduler.pool.used,
            admitted=admitted,
        )

    def _keep_up(self, k_next: int, chunks: list[Chunk]) -> AttentionLoad:
        """Stop or start the drafter with K, as `Proposer.keep_up`."""
        sync = self._scheduler.proposer.sync
        if sync is None or (k_next == 0) == sync.stopped:
            return NO_ATTENTION
        entries = [walker.at(self._step) for walker in self._walkers.values()]
        entries += [entry for entry, _ in chunks]
        rows = np.array([entry.row for entry in entries], np.int64)
        return sync.switch(rows, np.array([entry.known - entry.lag for entry in entries], np.int64))


def _forward(n: int, known: int, now: list[int], chunks: list[Chunk], emitting: int) -> ForwardPass:
    """N decoding sequences with `known` tokens in all, and prompt chunks."""
    _, _, drafts, several, cached, pairs, _ = now
    single, queries = n - several, several + drafts
    read = known - n - cached + single
    decode = AttentionLoad(single, single, read, read)
    extend = AttentionLoad(several, queries, cached + queries, pairs)
    for entry, tokens in chunks:
        context = entry.known - entry.lag
        if tokens == 1:
            seqs, _, read, _ = decode
            decode = AttentionLoad(seqs + 1, seqs + 1, read + context + 1, read + context + 1)
        else:
            pairs = tokens * context + tokens * (tokens + 1) // 2
            seqs, queries, read, before = extend
            extend = AttentionLoad(seqs + 1, queries + tokens, read + context + tokens, before + pairs)
    num_tokens = decode.num_tokens + extend.num_tokens
    return ForwardPass(n + len(chunks), num_tokens, emitting + drafts, drafts, decode, extend)


def enter_epoch(scheduler: Scheduler, first_step: int) -> Epoch | None:
    """An epoch from here, or None when the requests' steps cannot be foreseen."""
    k, table = scheduler.steady_drafts(), scheduler.proposer.table
    return None if k is None or table is None else Epoch(scheduler, table, k, first_step)
