"""What the servers of a run wrote down -> one `RunRecord`: steps in order of time, requests in table order."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import PassPrice
from sim.metrics.record import RequestRecord, RunRecord, Status, StepRecord
from sim.scheduler.plan import StepFacts
from sim.scheduler.schedule import Scheduler
from sim.server.recorder import Ledger, Recorder

Ints = NDArray[np.int64]


def assemble(ledger: Ledger, servers: Sequence[tuple[Recorder, Scheduler]]) -> RunRecord:
    """Everything written down, as columns.

    Args:
        ledger: of the run.
        servers: recorder and scheduler of each, by number.
    """
    return _Assembly(ledger, servers).record()


class _Assembly:
    def __init__(self, ledger: Ledger, servers: Sequence[tuple[Recorder, Scheduler]]) -> None:
        self._ledger, self._table = ledger, ledger.table
        self._recorders = [recorder for recorder, _ in servers]
        self._schedulers = [scheduler for _, scheduler in servers]
        counts = [recorder.num_steps for recorder in self._recorders]
        start = np.fromiter(chain.from_iterable(r.start_ns for r in self._recorders), np.int64, sum(counts))
        # Steps server by server, and the order in which they began.
        self._order = np.argsort(start, kind="stable")
        self._start, self._server = start[self._order], np.repeat(np.arange(len(servers)), counts)[self._order]
        self._started = np.flatnonzero(ledger.emission_step >= 0)
        self._emission_step = self._renumbered([0, *accumulate(counts)][:-1])
        self._emitted = self._of_requests(self._emitted_by)

    def record(self) -> RunRecord:
        ledger, first = self._ledger, self._schedulers[0]
        accepted = np.zeros(len(ledger.drafted), np.uint8)
        accepted[self._started] = first.tape.taken(self._started, ledger.drafted[self._started])
        steps = self._steps(accepted)
        return RunRecord(
            requests=self._requests(steps.start_ns + steps.duration_ns),
            steps=steps,
            emission_step=self._emission_step,
            drafted=ledger.drafted,
            accepted=accepted,
            num_kv_blocks=sum(scheduler.pool.num_blocks for scheduler in self._schedulers),
            block_size=first.pool.block_size,
            num_replicas=len(self._schedulers),
            tree_depth=first.tape.tree_depth,
            evictions=sum(scheduler.cache.evictions for scheduler in self._schedulers),
        )

    def _renumbered(self, first_step: list[int]) -> NDArray[np.int32]:
        """(T,) emission steps, counted over all servers in order of their starts."""
        place = np.empty(len(self._order), np.int32)
        place[self._order] = np.arange(len(self._order))
        renumbered = self._ledger.emission_step.copy()
        server = np.repeat(self._ledger.replica, self._table.output_tokens)[self._started]
        renumbered[self._started] = place[np.array(first_step)[server] + renumbered[self._started]]
        return renumbered

    def _of_requests(self, column: Callable[[Scheduler], Ints]) -> Ints:
        """(N,) a column of the schedulers, each request's from its own server."""
        values = column(self._schedulers[0])
        for number, scheduler in enumerate(self._schedulers[1:], 1):
            values = np.where(self._ledger.replica == number, column(scheduler), values)
        return values

    def _of_steps(
        self, rows: Callable[[Recorder], Iterable[tuple[float, ...]]], width: int, dtype: Any
    ) -> NDArray[Any]:
        """Rows of `width` numbers per step as columns in order of time, shape (width, steps)."""
        return _table(chain.from_iterable(map(rows, self._recorders)), len(self._order), width, dtype)[:, self._order]

    def _emitted_by(self, scheduler: Scheduler) -> Ints:
        """(N,) output tokens that each request got from this server."""
        emitted: Ints = scheduler.waiting.num_emitted.copy()
        running = scheduler.running
        emitted[running.row] = running.cursor - self._table.output_offset[running.row]
        return emitted

    def _chunk_lengths(self) -> Ints:
        """Tokens of each chunk: up to the next chunk of the same request, or to the last token it emitted."""
        started = self._started
        lengths = np.diff(started, append=self._table.num_positions)
        offset = self._table.output_offset
        last = np.searchsorted(started, offset + self._table.output_tokens) - 1
        has_chunks = (last >= 0) & (started[np.maximum(last, 0)] >= offset) if len(started) else last < -1
        end = offset + self._emitted
        lengths[last[has_chunks]] = end[has_chunks] - started[last[has_chunks]]
        return lengths

    def _status(self, has_tokens: NDArray[np.bool_]) -> NDArray[np.int8]:
        table, first = self._table, self._schedulers[0]
        answered = self._of_requests(lambda scheduler: scheduler.waiting.num_emitted)
        status = np.full(len(table), Status.UNFINISHED, np.int8)
        if table.sessions is not None:
            status[self._ledger.arrival < 0] = Status.UNSENT
        for scheduler in self._schedulers:
            status[scheduler.waiting.rejected] = Status.REJECTED
        status[(answered >= table.output_limit(first.config.max_model_len)) & has_tokens] = Status.FINISHED
        return status

    def _requests(self, step_end: Ints) -> RequestRecord:
        table, n = self._table, len(self._table)
        first = self._emission_step[table.output_offset] if n else np.zeros(0, np.int32)
        last = np.maximum.reduceat(self._emission_step, table.output_offset) if n else first
        status = self._status(last >= 0)
        return RequestRecord(
            prompt_tokens=table.prompt_tokens,
            output_tokens=table.output_tokens,
            emitted_tokens=self._emitted,
            output_offset=table.output_offset,
            class_id=table.class_id,
            arrival_ns=self._ledger.arrival,
            first_scheduled_ns=self._ledger.first_scheduled,
            first_token_ns=_at(step_end, first, first >= 0),
            finish_ns=_at(step_end, last, status == Status.FINISHED),
            status=status,
            num_preemptions=self._of_requests(lambda scheduler: scheduler.num_preemptions),
            recomputed_tokens=self._of_requests(
                lambda scheduler: scheduler.recomputed_tokens - scheduler.waiting.restored_tokens
            ),
            cached_tokens=self._of_requests(lambda scheduler: np.maximum(scheduler.waiting.cached_tokens, 0)),
            shared_tokens=np.zeros(n, np.int64) if table.prefixes is None else table.prefixes.tokens,
            replica=self._ledger.replica,
            session_row=None if table.sessions is None else table.sessions.first_row,
        )

    def _steps(self, accepted: NDArray[np.uint8]) -> StepRecord:
        num_steps = len(self._order)
        duration, draft, target, host = self._of_steps(_durations, 4, np.int64)
        prices = self._of_steps(_prices, len(PassPrice._fields), np.float64)
        facts = self._of_steps(lambda recorder: recorder.facts, len(StepFacts._fields), np.int64)
        fact = dict(zip(StepFacts._fields, facts, strict=True))
        step_of = self._emission_step[self._started]
        emitted = np.bincount(step_of, weights=self._chunk_lengths(), minlength=num_steps).astype(np.int64)
        taken = np.bincount(step_of, weights=accepted[self._started], minlength=num_steps).astype(np.int64)
        return StepRecord(
            replica=self._server,
            start_ns=self._start,
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
            kv_blocks_used=self._of_steps(lambda recorder: zip(recorder.blocks), 1, np.int64)[0],
            preemptions=fact["preemptions"],
            op_seconds=prices[1:6].T,
            memory_bound=prices[6] > 0,
            extrapolated=prices[7] > 0 if prices[7].any() else None,
        )


def _durations(recorder: Recorder) -> Iterable[tuple[float, ...]]:
    return (cost[:4] for cost in recorder.cost)


def _prices(recorder: Recorder) -> Iterable[PassPrice]:
    return (cost.price for cost in recorder.cost)


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
