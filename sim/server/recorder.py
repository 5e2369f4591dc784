"""Writes down what happens, as cheaply as possible: a few appends per step and two scatters per emission."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import PassPrice
from sim.metrics.record import RequestRecord, RunRecord, Status, StepRecord
from sim.scheduler.plan import StepFacts
from sim.scheduler.schedule import Scheduler
from sim.scheduler.walker import Walker
from sim.server.pricing import StepCost
from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]


class Recorder:
    """Columns of one run, growing step by step.

    Args:
        table: the requests of the run.
    """

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self._arrival = np.full(len(table), -1, np.int64)
        self._first_scheduled = np.full(len(table), -1, np.int64)
        self._emission_step = np.full(table.num_positions, -1, np.int32)
        self._drafted = np.zeros(table.num_positions, np.uint8)
        self._start: list[int] = []
        self._cost: list[StepCost] = []
        self._blocks: list[int] = []
        self._facts: list[StepFacts] = []

    def arrival(self, row: int, now_ns: int) -> None:
        """A request was submitted."""
        self._arrival[row] = now_ns

    def admitted(self, rows: list[int], now_ns: int) -> None:
        """Requests entered the running list; only the first time counts."""
        for row in rows:
            if self._first_scheduled[row] < 0:
                self._first_scheduled[row] = now_ns

    def step(self, start_ns: int, cost: StepCost, facts: StepFacts, kv_blocks_used: int) -> None:
        """A step is done."""
        self._start.append(start_ns)
        self._cost.append(cost)
        self._facts.append(facts)
        self._blocks.append(kv_blocks_used)

    @property
    def num_steps(self) -> int:
        """Steps recorded so far: the index of the next one."""
        return len(self._start)

    def emissions(self, cursor: Ints, drafts: Ints) -> None:
        """The last step emitted chunks that start at these output positions, after verifying these many drafts."""
        self._emission_step[cursor] = len(self._start) - 1
        self._drafted[cursor] = drafts

    def walked(self, walkers: list[Walker]) -> None:
        """Requests that went through an epoch, up to the last step recorded."""
        for walker in walkers:
            starts = walker.starts[: len(self._start) - walker.first_step]
            self._emission_step[starts] = np.arange(walker.first_step, walker.first_step + len(starts))
            self._drafted[starts] = walker.drafts[: len(starts)]

    def record(self, scheduler: Scheduler) -> RunRecord:
        """Everything written down, as columns."""
        started = np.flatnonzero(self._emission_step >= 0)
        accepted = np.zeros(len(self._drafted), np.uint8)
        accepted[started] = scheduler.tape.taken(started, self._drafted[started])
        return RunRecord(
            requests=self._requests(scheduler),
            steps=self._steps(started, accepted, self._chunk_lengths(started, scheduler)),
            emission_step=self._emission_step,
            drafted=self._drafted,
            accepted=accepted,
            num_kv_blocks=scheduler.pool.num_blocks,
            block_size=scheduler.pool.block_size,
            tree_depth=scheduler.tape.tree_depth,
            evictions=scheduler.cache.evictions,
        )

    def _chunk_lengths(self, started: Ints, scheduler: Scheduler) -> Ints:
        """Tokens of each chunk: up to the next chunk of the same request, or to the last token it emitted."""
        lengths = np.diff(started, append=self._table.num_positions)
        offset = self._table.output_offset
        last = np.searchsorted(started, offset + self._table.output_tokens) - 1
        has_chunks = (last >= 0) & (started[np.maximum(last, 0)] >= offset) if len(started) else last < -1
        end = offset + self._emitted(scheduler)
        lengths[last[has_chunks]] = end[has_chunks] - started[last[has_chunks]]
        return lengths

    def _emitted(self, scheduler: Scheduler) -> Ints:
        """Output tokens that each request handed out."""
        emitted: Ints = scheduler.waiting.num_emitted.copy()
        running = scheduler.running
        emitted[running.row] = running.cursor - self._table.output_offset[running.row]
        return emitted

    def _requests(self, scheduler: Scheduler) -> RequestRecord:
        table, n = self._table, len(self._table)
        step_end = np.array(
            [start + cost.total_ns for start, cost in zip(self._start, self._cost, strict=True)], np.int64
        )
        first = self._emission_step[table.output_offset] if n else np.zeros(0, np.int32)
        last = np.maximum.reduceat(self._emission_step, table.output_offset) if n else first
        finished = scheduler.waiting.num_emitted >= table.output_limit(scheduler.config.max_model_len)
        status = np.full(n, Status.UNFINISHED, np.int8)
        if table.sessions is not None:
            status[self._arrival < 0] = Status.UNSENT
        status[scheduler.waiting.rejected] = Status.REJECTED
        status[finished & (last >= 0)] = Status.FINISHED
        done = status == Status.FINISHED
        return RequestRecord(
            prompt_tokens=table.prompt_tokens,
            output_tokens=table.output_tokens,
            emitted_tokens=self._emitted(scheduler),
            output_offset=table.output_offset,
            class_id=table.class_id,
            arrival_ns=self._arrival,
            first_scheduled_ns=self._first_scheduled,
            first_token_ns=_at(step_end, first, first >= 0),
            finish_ns=_at(step_end, last, done),
            status=status,
            num_preemptions=scheduler.num_preemptions,
            recomputed_tokens=scheduler.recomputed_tokens - scheduler.waiting.restored_tokens,
            cached_tokens=np.maximum(scheduler.waiting.cached_tokens, 0),
            shared_tokens=np.zeros(n, np.int64) if table.prefixes is None else table.prefixes.tokens,
            session_row=None if table.sessions is None else table.sessions.first_row,
        )

    def _steps(self, started: Ints, accepted: NDArray[np.uint8], lengths: Ints) -> StepRecord:
        num_steps = len(self._start)
        duration, draft, target, host = _table((cost[:4] for cost in self._cost), num_steps, 4, np.int64)
        prices = _table((cost.price for cost in self._cost), num_steps, len(PassPrice._fields), np.float64)
        facts = _table(self._facts, num_steps, len(StepFacts._fields), np.int64)
        fact = dict(zip(StepFacts._fields, facts, strict=True))
        step_of = self._emission_step[started]
        emitted = np.bincount(step_of, weights=lengths, minlength=num_steps).astype(np.int64)
        taken = np.bincount(step_of, weights=accepted[started], minlength=num_steps).astype(np.int64)
        return StepRecord(
            start_ns=np.array(self._start, np.int64),
            duration_ns=duration,
            draft_ns=draft,
            target_ns=target,
            host_ns=host,
            num_seqs=fact["num_seqs"],
            num_emitting=fact["num_emitting"],
            prefill_tokens=fact["prefill_tokens"],
            num_tokens=fact["num_tokens"],
            draft_tokens=fact["draft_tokens"],
            accepted_tokens=taken,
            emitted_tokens=emitted,
            num_draft_tokens=fact["num_draft_tokens"],
            running=fact["running"],
            waiting=fact["waiting"],
            kv_blocks_used=np.array(self._blocks, np.int64),
            preemptions=fact["preemptions"],
            op_seconds=prices[1:6].T,
            memory_bound=prices[6] > 0,
            extrapolated=prices[7] > 0 if prices[7].any() else None,
        )


def _table(
    rows: Iterable[tuple[float, ...]], num_rows: int, num_columns: int, dtype: type[np.number[Any]]
) -> NDArray[Any]:
    """Tuples as an array of shape (num_columns, num_rows); several times faster than `np.array` on tuples."""
    flat = np.fromiter(chain.from_iterable(rows), dtype, num_rows * num_columns)
    return flat.reshape(num_rows, num_columns).T.copy()


def _at(step_end: Ints, step: NDArray[np.int32], where: NDArray[np.bool_]) -> Ints:
    times = np.full(len(step), -1, np.int64)
    times[where] = step_end[step[where]]
    return times
