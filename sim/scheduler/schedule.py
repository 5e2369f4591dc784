"""The scheduler: one token budget closes the gap `known + drafts - computed` of every request. Knows no clock.

The rule of fidelity.md 1.2 (vLLM V1 `scheduler.py`), vLLM-V1-like: prefill, chunked prefill, decode, verification and
recomputation after preemption are the same subtraction. The usual step is a few vector operations; a step that runs
out of KV blocks goes request by request (`_ration_blocks`). `tests/oracles` holds both to a slow reference.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Tape
from sim.draft_length.base import DraftLength
from sim.errors import CapacityError, InvariantError
from sim.kv_cache.block_pool import BlockPool
from sim.scheduler.plan import Emitted, SchedulerConfig, StepPlan, plan_step
from sim.scheduler.running import KNOWN, OVER, Running
from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]

#: A request preempted this often without a new token stops the run: the pool is too small to make progress.
MAX_FRUITLESS_PREEMPTIONS = 1000


class Scheduler:
    """Running and waiting requests of one engine.

    Args:
        config: engine limits.
        table: the requests; `add` names them by row.
        tape: acceptance by output position.
        draft_length: picks K for the next step.
    """

    def __init__(self, config: SchedulerConfig, table: RequestTable, tape: Tape, draft_length: DraftLength) -> None:
        self.config, self.table, self.tape, self.draft_length = config, table, tape, draft_length
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.running = Running(config.max_num_seqs)
        self.waiting: deque[int] = deque()
        self.num_emitted = np.zeros(len(table), np.int64)
        self.num_preemptions = np.zeros(len(table), np.int64)
        self.recomputed_tokens = np.zeros(len(table), np.int64)
        self.rejected: list[int] = []
        self._rejected_late: list[int] = []
        self._fruitless: dict[int, tuple[int, int]] = {}
        self._head_blocked = False
        self._last_k: int | None = None
        self._prompt = table.prompt_tokens.tolist()
        self._offset = table.output_offset.tolist()
        # A request also ends when its known tokens reach max_model_len.
        self._output = np.minimum(table.output_tokens, config.max_model_len - table.prompt_tokens).tolist()
        self._all_speculate = bool(table.speculate.all())
        self._speculates = table.speculate.astype(np.int64).tolist()
        longest = int((table.prompt_tokens + table.output_tokens).max(initial=0))
        self._near_max_model_len = longest + 2 * config.lookahead_tokens + 64 >= config.max_model_len
        self._watermark_blocks = int(config.watermark * config.num_blocks)
        # Otherwise what the head needs depends on the budget left over, which changes from step to step.
        self._blocked_by_blocks_alone = config.scheduler_reserve_full_isl and config.enable_chunked_prefill

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self.running.count and not self.waiting

    def add(self, row: int) -> bool:
        """Queue a request; False when it can never run (rejected and counted, never spun on)."""
        prompt = self._prompt[row]
        if prompt >= self.config.max_model_len or not self._can_ever_run(prompt):
            self.rejected.append(row)
            return False
        self.waiting.append(row)
        return True

    def schedule(self) -> StepPlan:
        """Hand out one token budget: running requests in order of admission, then waiting ones.

        Returns:
            The plan; `num_seqs` is 0 when nothing can run, which happens only if nothing is left (`idle`).
        """
        preempted: list[int] = []
        granted = self._schedule_running(preempted)
        budget = self.config.max_num_scheduled_tokens - int(granted.sum())
        admitted: list[int] = []
        if not preempted and self.waiting:
            granted = self._schedule_waiting(granted, budget, admitted)
        return plan_step(self.running, granted, self.draft_length, admitted, preempted)

    def take_rejected(self) -> list[int]:
        """Rows given up since the last call: preempted requests that have outgrown the pool."""
        late, self._rejected_late = self._rejected_late, []
        self.rejected += late
        return late

    def commit(self, plan: StepPlan) -> Emitted:
        """Accept drafts, roll back the rest, emit, propose drafts for the next step, and retire what is done."""
        running, sel = self.running, plan.emitting
        rows, cursor = running.row[sel].copy(), running.cursor[sel].copy()
        accepted = np.minimum(self.tape.accepted.take(cursor), plan.drafts)
        tokens = np.minimum(accepted + 1, -running.over[sel])
        running.cells[KNOWN : OVER + 1, sel] += tokens
        running.lag[sel] = 1
        self._propose(sel, plan.k_next)
        self._last_k = plan.k_next if isinstance(sel, slice) else None
        return Emitted(rows, cursor, tokens, plan.drafts, accepted, self._finish())

    def steady_drafts(self) -> int | None:
        """The K that all running requests decode with, now and until something changes; None when a decision is due.

        Steady: all decode (everyone emitted in the last step), nobody can be admitted, and K is the same for everyone.
        """
        running, k = self.running, self._last_k
        if k is None or not running.count or self._near_max_model_len or self.draft_length.choose(running.count) != k:
            return None
        if self.waiting and not self._head_blocked and running.count < self.config.max_num_seqs:
            return None
        if k and (self.tape.proposed is not None or not self._all_speculate):
            return None
        return k

    def describe(self, plan: StepPlan) -> list[tuple[int, int, int]]:
        """(row, tokens, drafts) of every scheduled request, in order; valid until `commit`."""
        drafts = np.maximum(-self.running.lag, 0)
        columns = (self.running.row.tolist(), plan.num_tokens.tolist(), drafts.tolist())
        return [entry for entry in zip(*columns, strict=True) if entry[1]]

    def check(self) -> None:
        """Block and queue invariants (reliability.md I2, I3, I5).

        Raises:
            InvariantError: one is broken.
        """
        self.pool.check(int(self.running.slots.sum()) // self.config.block_size)
        self.running.check()
        if self.running.count > self.config.max_num_seqs or set(self.waiting) & set(self.running.row.tolist()):
            raise InvariantError("running list too long, or a request both waits and runs")

    # ---- running requests -------------------------------------------------------------------------------------

    def _schedule_running(self, preempted: list[int]) -> Ints:
        """Phase A: tokens for each running request, shape (count,); may preempt from the end of the list."""
        running = self.running
        granted = self._wanted()
        budget = self.config.max_num_scheduled_tokens
        if int(granted.sum()) > budget:
            end = granted.cumsum()
            granted = np.clip(budget - (end - granted), 0, granted)
        missing = self._missing_slots(granted)
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

    def _wanted(self) -> Ints:
        """The gap of each running request, capped by the long-prefill threshold and by max_model_len."""
        running, config = self.running, self.config
        wanted: Ints = running.lag + running.drafts
        if config.long_prefill_token_threshold:
            np.minimum(wanted, config.long_prefill_token_threshold, out=wanted)
        if self._near_max_model_len:
            np.minimum(wanted, config.max_model_len - 1 - (running.known - running.lag), out=wanted)
        return wanted

    def _missing_slots(self, granted: Ints) -> Ints:
        """KV slots each running request lacks for its grant and the next drafts; <= 0 where it has enough."""
        running, config = self.running, self.config
        slots: Ints = running.known - running.lag + granted + config.lookahead_tokens
        if self._near_max_model_len:
            np.minimum(slots, config.max_model_len, out=slots)
        missing: Ints = slots - running.slots
        missing[granted == 0] = 0
        return missing

    def _ration_blocks(self, preempted: list[int]) -> Ints:
        """Phase A request by request: the last running request is preempted until the current one has its blocks."""
        running, config, pool = self.running, self.config, self.pool
        wanted, budget, granted, i = self._wanted().tolist(), config.max_num_scheduled_tokens, [], 0
        while i < running.count and budget > 0:
            tokens = min(wanted[i], budget)
            needed = self._blocks_to_grow(i, tokens)
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

    def _blocks_to_grow(self, i: int, tokens: int) -> int:
        if tokens == 0:
            return 0
        running, config = self.running, self.config
        slots = int(running.known[i] - running.lag[i]) + tokens + config.lookahead_tokens
        return max(
            0, self.pool.blocks_for(min(slots, config.max_model_len)) - int(running.slots[i]) // config.block_size
        )

    def _preempt_last(self) -> int:
        """Send the last running request to the front of the queue; it keeps its output and loses blocks and drafts."""
        running, last = self.running, self.running.count - 1
        row = int(running.row[last])
        self.num_preemptions[row] += 1
        computed = int(running.known[last] - running.placeholders[last] - running.lag[last])
        self.recomputed_tokens[row] += max(0, computed)
        self.num_emitted[row] = int(running.cursor[last]) - self._offset[row]
        self._guard_progress(row)
        self.pool.give_back(int(running.slots[last]) // self.config.block_size)
        running.resize(last)
        self.waiting.appendleft(row)
        self._head_blocked = False
        return row

    def _guard_progress(self, row: int) -> None:
        emitted = int(self.num_emitted[row])
        seen, times = self._fruitless.get(row, (emitted, 0))
        self._fruitless[row] = (emitted, times + 1 if seen == emitted else 1)
        if self._fruitless[row][1] > MAX_FRUITLESS_PREEMPTIONS:
            raise CapacityError(
                f"request {row} was preempted {MAX_FRUITLESS_PREEMPTIONS} times without a new token: "
                f"the KV pool of {self.pool.num_blocks} blocks is too small for this load"
            )

    # ---- waiting requests -------------------------------------------------------------------------------------

    def _schedule_waiting(self, granted: Ints, budget: int, admitted: list[int]) -> Ints:
        """Phase B: admit from the head of the queue until something is short (the head blocks the line)."""
        running, extra = self.running, []
        busy = bool(granted.any())
        while self.waiting and budget > 0 and running.count < self.config.max_num_seqs:
            row = self.waiting[0]
            if not self._can_ever_run(self._prompt[row] + int(self.num_emitted[row])):
                self._rejected_late.append(self.waiting.popleft())
                continue
            tokens = self._admission_tokens(row, budget, busy)
            if tokens == 0:
                self._head_blocked = self._blocked_by_blocks_alone
                break
            self._admit(self.waiting.popleft(), tokens)
            admitted.append(row)
            extra.append(tokens)
            budget -= tokens
            busy = True
        return np.concatenate((granted, np.array(extra, np.int64))) if extra else granted

    def _admission_tokens(self, row: int, budget: int, busy: bool) -> int:
        """Tokens the head of the queue would get now; 0 when it has to wait."""
        config, pool = self.config, self.pool
        known = self._prompt[row] + int(self.num_emitted[row])
        tokens = min(known, config.long_prefill_token_threshold or known)
        if tokens > budget and not config.enable_chunked_prefill:
            return 0
        tokens = min(tokens, budget)
        needed = pool.blocks_for(known if config.scheduler_reserve_full_isl else tokens)
        reserve = self._watermark_blocks if busy else 0
        return tokens if needed + reserve <= pool.free else 0

    def _can_ever_run(self, known: int) -> bool:
        """Whether an empty engine could prefill `known` tokens."""
        config = self.config
        chunk = min(known, config.long_prefill_token_threshold or known)
        in_budget = config.enable_chunked_prefill or chunk <= config.max_num_scheduled_tokens
        return in_budget and self.pool.blocks_for(known) <= config.num_blocks

    def _admit(self, row: int, tokens: int) -> None:
        blocks = self.pool.blocks_for(tokens)
        self.pool.take(blocks)
        emitted = int(self.num_emitted[row])
        known, slots = self._prompt[row] + emitted, blocks * self.config.block_size
        over, cursor = emitted - self._output[row], self._offset[row] + emitted
        self.running.append((known, cursor, over, known, 0, slots, row, self._speculates[row], 0))

    # ---- after the step ----------------------------------------------------------------------------------------

    def _propose(self, sel: slice | Ints, k: int) -> None:
        """Drafts for the next step of the requests that emitted: k each, or what the drafter finds there."""
        running, proposed = self.running, self.tape.proposed
        if proposed is None:
            running.drafts[sel] = running.speculates[sel] * k
        else:  # clip: a finished request's cursor may point past the last position; its drafts are never used
            found = np.minimum(proposed.take(running.cursor[sel], mode="clip"), k)
            running.drafts[sel] = running.speculates[sel] * found

    def _finish(self) -> list[int]:
        """Remove the requests that are done and free their blocks; returns their rows."""
        running = self.running
        if not running.count or int(running.over.max()) < 0:
            return []
        done = running.over >= 0
        finished: list[int] = running.row[done].tolist()
        self.num_emitted[finished] = running.cursor[done] - self.table.output_offset[finished]
        self.pool.give_back(int(running.slots[done].sum()) // self.config.block_size)
        running.keep(np.flatnonzero(~done))
        self._head_blocked = False
        return finished
