"""Writes down what happens, as cheaply as possible: one tuple per step and two scatters per emission."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import PassPrice
from sim.metrics.record import RequestRecord, RunRecord, Status, StepRecord
from sim.scheduler.schedule import Scheduler
from sim.server.pricing import StepCost
from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]


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
    kv_blocks_used: int
    preemptions: int


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
        self._times: list[tuple[int, int, int, int, int]] = []
        self._facts: list[StepFacts] = []
        self._prices: list[PassPrice] = []

    def arrival(self, row: int, now_ns: int) -> None:
        """A request was submitted."""
        self._arrival[row] = now_ns

    def admitted(self, rows: list[int], now_ns: int) -> None:
        """Requests entered the running list; only the first time counts."""
        for row in rows:
            if self._first_scheduled[row] < 0:
                self._first_scheduled[row] = now_ns

    def step(self, start_ns: int, cost: StepCost, facts: StepFacts) -> None:
        """A step is done."""
        self._times.append((start_ns, cost.total_ns, cost.draft_ns, cost.target_ns, cost.host_ns))
        self._facts.append(facts)
        self._prices.append(cost.price)

    def emissions(self, cursor: Ints, drafts: Ints | int, num_steps: int = 1) -> None:
        """The last `num_steps` steps emitted chunks.

        Args:
            cursor: output positions where the chunks start: (n,) for one step, (num_steps, n) for several.
            drafts: drafts verified there, one number or an array like `cursor`.
            num_steps: rows of `cursor` when there are several steps.
        """
        last = len(self._times)
        steps: Ints | int = last - 1 if cursor.ndim == 1 else np.arange(last - num_steps, last)[:, None]
        self._emission_step[cursor] = steps
        self._drafted[cursor] = drafts

    def record(self, scheduler: Scheduler) -> RunRecord:
        """Everything written down, as columns."""
        started = np.flatnonzero(self._emission_step >= 0)
        accepted = np.zeros(len(self._drafted), np.uint8)
        accepted[started] = np.minimum(scheduler.tape.accepted[started], self._drafted[started])
        return RunRecord(
            requests=self._requests(scheduler),
            steps=self._steps(started, accepted, self._chunk_lengths(started, scheduler)),
            emission_step=self._emission_step,
            drafted=self._drafted,
            accepted=accepted,
            num_kv_blocks=scheduler.pool.num_blocks,
            block_size=scheduler.pool.block_size,
        )

    def _chunk_lengths(self, started: Ints, scheduler: Scheduler) -> Ints:
        """Tokens of each chunk: up to the next chunk of the same request, or to the last token it emitted."""
        offset = self._table.output_offset
        end = (offset + self._emitted(scheduler))[np.searchsorted(offset, started, side="right") - 1]
        following = np.append(started[1:], self._table.num_positions)
        lengths: Ints = np.minimum(following, end) - started
        return lengths

    def _emitted(self, scheduler: Scheduler) -> Ints:
        """Output tokens that each request handed out."""
        emitted: Ints = scheduler.waiting.num_emitted.copy()
        running = scheduler.running
        emitted[running.row] = running.cursor - self._table.output_offset[running.row]
        return emitted

    def _requests(self, scheduler: Scheduler) -> RequestRecord:
        table, n = self._table, len(self._table)
        step_end = np.array([time[0] + time[1] for time in self._times], np.int64)
        first = self._emission_step[table.output_offset] if n else np.zeros(0, np.int32)
        last = np.maximum.reduceat(self._emission_step, table.output_offset) if n else first
        finished = scheduler.waiting.num_emitted >= np.minimum(
            table.output_tokens, scheduler.config.max_model_len - table.prompt_tokens
        )
        status = np.full(n, Status.UNFINISHED, np.int8)
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
            recomputed_tokens=scheduler.recomputed_tokens,
        )

    def _steps(self, started: Ints, accepted: NDArray[np.uint8], lengths: Ints) -> StepRecord:
        num_steps = len(self._times)
        times = np.array(self._times, np.int64).reshape(num_steps, 5).T
        facts = np.array(self._facts, np.int64).reshape(num_steps, len(StepFacts._fields)).T
        prices = np.array(self._prices, np.float64).reshape(num_steps, len(PassPrice._fields))
        step_of = self._emission_step[started]
        emitted = np.bincount(step_of, weights=lengths, minlength=num_steps).astype(np.int64)
        taken = np.bincount(step_of, weights=accepted[started], minlength=num_steps).astype(np.int64)
        fact = dict(zip(StepFacts._fields, facts, strict=True))
        start, duration, draft, target, host = times
        return StepRecord(
            start_ns=start,
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
            kv_blocks_used=fact["kv_blocks_used"],
            preemptions=fact["preemptions"],
            op_seconds=prices[:, 1:6],
            memory_bound=prices[:, 6] > 0,
        )


def _at(step_end: Ints, step: NDArray[np.int32], where: NDArray[np.bool_]) -> Ints:
    times = np.full(len(step), -1, np.int64)
    times[where] = step_end[step[where]]
    return times
