"""Runs pure functions over tasks: in this process, or in a pool of fresh (spawned) ones that survives its workers.

When a worker dies, another takes its place. The task it died over is a suspect: it is run again alone at the end, and
given up when it kills its worker again. Results do not depend on the number of workers or their luck.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Protocol, TypeVar, cast

from sim.experiment.worker import Answer, Worker

T = TypeVar("T")
R = TypeVar("R")

#: When no task has finished for this long, something hangs: the longest runs take a few minutes.
STALL_S = 1800.0


@dataclass(frozen=True, slots=True)
class Died:
    """A task whose worker died twice (killed, out of memory, crashed)."""

    reason: str = "its worker process died twice (killed, out of memory, or crashed)"


class Executor(Protocol):
    """Something that runs tasks; may be used for several batches of them, one after the other."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Died]]:
        """Run `function` over all tasks; yields (index, result) as they finish, in any order.

        Args:
            function: top-level, pure and picklable; an exception it raises is raised here.
            tasks: picklable; started in this order.
        """
        ...

    def close(self) -> None:
        """Stop what still runs and give the workers back."""
        ...


def usable_cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def local_executor(jobs: int | None = None, stall_s: float = STALL_S) -> Iterator[Executor]:
    """Workers of this machine, stopped at the end of the `with` block.

    Args:
        jobs: how many; default one per processor; with 1 everything runs in this process.
        stall_s: when no task finishes for this long, the workers are killed; see `LocalPool`.
    """
    workers = max(1, usable_cpus() if jobs is None else jobs)
    executor: Executor = LocalPool(workers, stall_s) if workers > 1 else Serial()
    try:
        yield executor
    finally:
        executor.close()


class Serial:
    """Everything in this process."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Died]]:
        """One task after another, in order."""
        for index, task in enumerate(tasks):
            yield index, function(task)

    def close(self) -> None:
        """Nothing to stop."""


class LocalPool:
    """Spawned processes, started when there is work for more than one and kept until `close`.

    A worker that hangs is treated like one that died: its task is run again alone, with the same patience.

    Args:
        jobs: the most workers at a time.
        stall_s: when no task finishes for this long, something hangs.
    """

    def __init__(self, jobs: int, stall_s: float = STALL_S) -> None:
        self._jobs, self._stall_s = jobs, stall_s
        self._workers: list[Worker] = []
        self._flying: dict[Connection, tuple[Worker, int]] = {}

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Died]]:
        """Tasks side by side; leaving the iterator early (or an interrupt) stops the workers at once."""
        if len(tasks) <= 1:
            yield from Serial().run(function, tasks)
            return
        suspects: list[int] = []
        try:
            yield from self._together(function, tasks, suspects)
            for index in sorted(suspects):
                yield index, self._alone(function, tasks[index])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the workers now, whatever they do."""
        self._flying.clear()
        while self._workers:
            self._workers.pop().kill()

    def _together(
        self, function: Callable[[T], R], tasks: Sequence[T], suspects: list[int]
    ) -> Iterator[tuple[int, R | Died]]:
        todo, finished = deque(range(len(tasks))), list[tuple[int, Answer]]()
        while todo or self._flying or finished:
            # Workers get their next tasks before anybody looks at what they did, so that none idles.
            while todo and len(self._flying) < self._jobs:
                self._give(function, tasks[todo[0]], todo.popleft())
            for index, answer in finished:
                yield index, cast(R, answer.result())
            finished = self._gather(suspects) if self._flying else []

    def _give(self, function: Callable[[T], R], task: T, index: int) -> None:
        idle = (worker for worker in self._workers if worker.pipe not in self._flying)
        worker = next(idle, None)
        if worker is None:
            worker = Worker()
            self._workers.append(worker)
        self._flying[worker.pipe] = worker, index
        worker.give(function, task)

    def _gather(self, suspects: list[int]) -> list[tuple[int, Answer]]:
        """The answers that are there, at least one unless workers died; those that died over a task are let go."""
        ready = [pipe for pipe in wait_for(list(self._flying), self._stall_s) if isinstance(pipe, Connection)]
        answers = []
        for pipe in ready or list(self._flying):
            worker, index = self._flying.pop(pipe)
            answer = worker.answer() if ready else None
            if answer is None:
                suspects.append(index)
                self._workers.remove(worker)
                worker.kill()
            else:
                answers.append((index, answer))
        return answers

    def _alone(self, function: Callable[[T], R], task: T) -> R | Died:
        self.close()
        worker = Worker()
        self._workers.append(worker)
        worker.give(function, task)
        if not worker.pipe.poll(self._stall_s):
            self.close()
            return Died(f"no answer for {self._stall_s:g} s, twice")
        answer = worker.answer()
        return Died() if answer is None else cast(R, answer.result())
