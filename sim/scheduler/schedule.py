"""The scheduler: one token budget closes the gap `known + drafts - computed` of every request. Knows no clock.

The rule of docs/background/server.md, "One engine step" (after vLLM V1's `scheduler.py`): prefill, chunked prefill,
decode, verification and recomputation after preemption are the same subtraction. The usual step is a few vector
operations; a step that runs out of KV blocks goes request by request (`_ration_blocks`). `tests/oracles` holds both to
a slow reference.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Tape
from sim.draft_length.base import Rule
from sim.errors import InvariantError
from sim.kv_cache.block_names import BlockNames
from sim.kv_cache.block_pool import BlockPool
from sim.kv_cache.prefix_cache import NoPrefixCache, PrefixCache
from sim.scheduler.batch_wait import BatchWait
from sim.scheduler.demand import Demand, Turn
from sim.scheduler.plan import Emitted, SchedulerConfig, StepPlan, plan_step
from sim.scheduler.proposer import Proposer
from sim.scheduler.running import KNOWN, OVER, Running
from sim.scheduler.waiting import Waiting
from sim.scheduler.walker import Entry, Track
from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]


class Scheduler:
    """Running and waiting requests of one engine.

    Args:
        config: engine limits.
        table: the requests; `add` names them by row.
        tape: acceptance by output position.
        rule: picks K for the next step.
        drafter_stops: at K = 0 the drafter does not run, and catches up later.

    Attributes:
        num_preemptions, recomputed_tokens: (N,) by request.
    """

    def __init__(
        self, config: SchedulerConfig, table: RequestTable, tape: Tape, rule: Rule, drafter_stops: bool = False
    ) -> None:
        self.config, self.table, self.tape = config, table, tape
        self.proposer = Proposer(rule, len(table), drafter_stops)
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.running = Running(config.max_num_seqs)
        self.cache = _prefix_cache(config, table, self.pool)
        self.waiting = Waiting(config, table, self.cache)
        self.num_preemptions = np.zeros(len(table), np.int64)
        self.recomputed_tokens = np.zeros(len(table), np.int64)
        longest = int((table.prompt_tokens + table.output_tokens).max(initial=0))
        self.demand = Demand(config, longest)
        self._batch_wait = BatchWait(config)
        self._last_k: int | None = None
        self._turn = Turn.ANYONE

    @cached_property
    def track(self) -> Track:
        """What it takes to foresee a request's steps."""
        config = self.config
        first = self.table.output_offset
        end = first + self.table.output_limit(config.max_model_len)
        return Track(self.tape, first, end, config.lookahead_tokens, config.block_size)

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self.running.count and not self.waiting.queue

    def add(self, row: int) -> bool:
        """Queue a request; False when it can never run (rejected and counted, never spun on)."""
        return self.waiting.add(row)

    def schedule(self) -> StepPlan:
        """Hand out one token budget: running requests in order of admission, then waiting ones.

        Returns:
            The plan; its pass has no tokens when nothing can run.
        """
        preempted: list[int] = []
        for turn in self.demand.turns:
            self._turn = turn
            granted = self._schedule_running(preempted)
            self._settle(granted)
            granted, admitted = self._admit(granted, bool(preempted))
            if granted.any():
                break
        plan = plan_step(self.running, granted, admitted, preempted)
        if self.proposer.table is not None:
            self.proposer.look_up(plan, self.proposer.table)
        else:
            self._ask_rule(plan)
        self.proposer.keep_up(self.running, plan)
        return plan

    def commit(self, plan: StepPlan) -> Emitted:
        """Accept drafts, roll back the rest, emit, propose drafts for the next step, and retire what is done."""
        running, sel = self.running, plan.emitting
        rows, cursor = running.row[sel].copy(), running.cursor[sel].copy()
        accepted = self.tape.taken(cursor, plan.drafts)
        tokens = np.minimum(accepted + 1, -running.over[sel])
        running.cells[KNOWN : OVER + 1, sel] += tokens
        running.lag[sel] = 1
        self._propose(sel, plan.drafts_next)
        self._last_k = plan.k_next if isinstance(sel, slice) else None
        return Emitted(rows, cursor, tokens, plan.drafts, accepted, self.retire_finished())

    def retire_finished(self) -> list[int]:
        """Remove the requests that are done and free their blocks; returns their rows."""
        running = self.running
        if not running.count or int(running.over.max()) < 0:
            return []
        done = np.flatnonzero(running.over >= 0)
        return self._remove(done)

    def steady_drafts(self) -> int | None:
        """The K that all running requests have drafts for, when their steps can be foreseen from here; else None.

        Foreseeable: K follows from the batch size, all decode (or none runs), no request is near max_model_len or
        long_prefill_token_threshold, prefill does not hold up decode or wait for a batch, and no preempted request
        waits. Then an `Epoch` can take over.
        """
        config = self.config
        if self.proposer.table is None or self.demand.near_max_model_len or config.long_prefill_token_threshold:
            return None
        if config.separate_prefill or config.waits_for_batch:
            return None
        if self.waiting.resumes_next():
            return None
        return self._last_k if self.running.count else 0

    def take_running(self) -> list[Entry]:
        """Hand the running list over, in order of admission; it is empty afterwards."""
        entries = self.running.entries(self.config.block_size)
        self.running.resize(0)
        return entries

    def restore_running(self, decoding: list[Entry], partial: Entry | None, k: int) -> None:
        """Take the running list back: requests that decode with k drafts, and one in the middle of its prompt."""
        self.running.extend(decoding, self.config.block_size)
        self._propose(slice(0, self.running.count), k)
        self.running.extend([] if partial is None else [partial], self.config.block_size)
        self._last_k = k if partial is None else None

    def describe(self, plan: StepPlan) -> list[tuple[int, int, int]]:
        """(row, tokens, drafts) of every scheduled request, in order; valid until `commit`."""
        drafts = np.maximum(-self.running.lag, 0)
        columns = (self.running.row.tolist(), plan.num_tokens.tolist(), drafts.tolist())
        return [entry for entry in zip(*columns, strict=True) if entry[1]]

    def check(self) -> None:
        """Every block is held or free, and the running list is no longer than it may be.

        Raises:
            InvariantError: one is broken.
        """
        self.pool.check(int(self.running.slots.sum()) // self.config.block_size - self.cache.surplus)
        self.cache.check()
        self.running.check()
        if self.running.count > self.config.max_num_seqs or self.waiting.rows() & set(self.running.row.tolist()):
            raise InvariantError("running list too long, or a request both waits and runs")

    def _admit(self, granted: Ints, short: bool) -> tuple[Ints, list[int]]:
        """Phase B: waiting requests with what is left of the budget, unless KV blocks ran short or it is decode's turn.

        Returns:
            The tokens granted, those admitted now at the end, and the rows of the latter.
        """
        if not self.waiting.queue or short or self._turn is Turn.DECODE:
            return granted, []
        scheduled = int(granted.sum())
        room = self.config.max_num_seqs - self.running.count
        budget, busy = self.config.max_num_scheduled_tokens - scheduled, self.running.count > 0
        wait = self._batch_wait
        if wait.enabled and wait.holds_back(scheduled, self.waiting.admissible_tokens(budget, busy, room)):
            return granted, []
        entries = self.waiting.admit(budget, busy, room)
        if not entries:
            return granted, []
        self.running.extend([entry for entry, _ in entries], self.config.block_size)
        tokens = np.array([tokens for _, tokens in entries], np.int64)
        return np.concatenate((granted, tokens)), [entry.row for entry, _ in entries]

    # ---- running requests -------------------------------------------------------------------------------------

    def _schedule_running(self, preempted: list[int]) -> Ints:
        """Phase A: tokens for each running request, shape (count,); may preempt from the end of the list."""
        running = self.running
        granted = self._wanted()
        budget = self.config.max_num_scheduled_tokens
        if int(granted.sum()) > budget:
            end = granted.cumsum()
            granted = np.clip(budget - (end - granted), 0, granted)
        missing = self.demand.missing_slots(running, granted)
        if running.count == 0 or int(missing.max()) <= 0:
            return granted
        block_size = self.config.block_size
        blocks = np.maximum((missing + (block_size - 1)) // block_size, 0)
        needed = int(blocks.sum())
        if needed > self.pool.free:
            return self._ration_blocks(preempted)
        self.pool.take(needed)
        running.slots += blocks * block_size
        return granted

    def _settle(self, granted: Ints) -> None:
        """The full blocks of the tokens that are final can be found by others: `min(computed + granted, known)`."""
        running, cache = self.running, self.cache
        if not isinstance(cache, PrefixCache):
            return
        final = np.minimum(running.known - running.placeholders, running.known - running.lag + granted)
        np.copyto(running.settled, final, where=granted > 0)
        for at in np.flatnonzero(running.settled >= cache.due[running.row]).tolist():
            cache.fill(int(running.row[at]), int(running.settled[at]))

    def _wanted(self) -> Ints:
        """Tokens each running request asks for, shape (count,)."""
        return self.demand.tokens(self.running, self._turn)

    def _ration_blocks(self, preempted: list[int]) -> Ints:
        """Phase A request by request: the last running request is preempted until the current one has its blocks."""
        running, config, pool = self.running, self.config, self.pool
        wanted, budget, granted, i = self._wanted().tolist(), config.max_num_scheduled_tokens, [], 0
        while i < running.count and budget > 0:
            tokens = min(wanted[i], budget)
            needed = self.demand.missing_blocks(running, i, tokens)
            while needed > pool.free and i < running.count:
                preempted.append(self._preempt_last())
            if i >= running.count:
                break
            pool.take(needed)
            running.slots[i] += needed * config.block_size
            granted.append(tokens)
            budget -= tokens
            i += 1
        return np.array(granted + [0] * (running.count - len(granted)), np.int64)

    def _preempt_last(self) -> int:
        """Send the last running request to the front of the queue; it keeps its output and loses blocks and drafts."""
        running, last = self.running, self.running.count - 1
        row = int(running.row[last])
        computed = int(running.known[last] - running.placeholders[last] - running.lag[last])
        self.num_preemptions[row] += 1
        self.recomputed_tokens[row] += max(0, computed)
        blocks, settled = int(running.slots[last]) // self.config.block_size, int(running.settled[last])
        self.cache.leave(row, blocks, settled, returns=True)
        self.waiting.put_back(row, int(running.cursor[last]))
        running.resize(last)
        return row

    # ---- after the step ----------------------------------------------------------------------------------------

    def _ask_rule(self, plan: StepPlan) -> None:
        """The rule sees what becomes of this step's drafts, then picks the next ones: the drafter runs after that."""
        running, sel, judged = self.running, plan.emitting, plan.verifying
        cursor = running.cursor[sel]
        accepted = self.tape.taken(cursor, plan.drafts)
        judged &= running.speculates[sel] > 0
        self.proposer.observe(plan, running.row[sel][judged], plan.drafts[judged], accepted[judged])
        self.proposer.choose(running, plan, cursor + accepted + 1)

    def _propose(self, sel: slice | Ints, k: int | Ints) -> None:
        """Drafts for the next step of the requests that emitted: k each, or what the drafter finds there."""
        running, proposed = self.running, self.tape.proposed
        if proposed is None:
            running.drafts[sel] = running.speculates[sel] * k
        else:  # clip: a finished request's cursor may point past the last position; its drafts are never used
            found = np.minimum(proposed.take(running.cursor[sel], mode="clip"), k)
            running.drafts[sel] = running.speculates[sel] * found

    def _remove(self, at: Ints) -> list[int]:
        """Take these positions off the running list and free their blocks; returns their rows."""
        running = self.running
        rows: list[int] = running.row[at].tolist()
        self.waiting.num_emitted[rows] = running.cursor[at] - self.table.output_offset[rows]
        blocks = running.slots[at] // self.config.block_size
        for row, held, settled in zip(rows, blocks.tolist(), running.settled[at].tolist(), strict=True):
            self.cache.leave(row, held, settled)
        keep = np.ones(running.count, np.bool_)
        keep[at] = False
        running.keep(np.flatnonzero(keep))
        self.waiting.blocked = False
        return rows


def _prefix_cache(config: SchedulerConfig, table: RequestTable, pool: BlockPool) -> NoPrefixCache:
    if not config.enable_prefix_caching:
        return NoPrefixCache(pool)
    return PrefixCache(pool, BlockNames(table, config.block_size), config.use_eagle)
