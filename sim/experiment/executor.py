"""Runs pure functions over tasks: in this process, or in a pool of fresh (spawned) ones that survives its workers.

When a worker dies, the pool is rebuilt. The tasks that were in flight are suspects: each is run again alone at the end,
and one that kills its worker again is given up. Results do not depend on the number of workers or their luck.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import Protocol, TypeVar

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

    A worker that hangs is treated like one that died: the tasks in flight are run again alone, with the same patience.

    Args:
        jobs: the most workers at a time.
        stall_s: when no task finishes for this long, something hangs.
    """

    def __init__(self, jobs: int, stall_s: float = STALL_S) -> None:
        self._jobs, self._stall_s = jobs, stall_s
        self._pool: ProcessPoolExecutor | None = None

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Died]]:
        """Tasks side by side; leaving the iterator early (or an interrupt) stops the workers at once."""
        if len(tasks) <= 1:
            yield from Serial().run(function, tasks)
            return
        suspects: list[int] = []
        try:
            yield from self._together(function, tasks, suspects)
            for index in suspects:
                yield index, self._alone(function, tasks[index])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the workers now, whatever they do."""
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            self._pool = None

    def _together(
        self, function: Callable[[T], R], tasks: Sequence[T], suspects: list[int]
    ) -> Iterator[tuple[int, R | Died]]:
        todo, flying = list(range(len(tasks)))[::-1], dict[Future[R], int]()
        while todo or flying:
            try:
                # One task waits for each that runs, so that no worker idles and few are suspected when one dies.
                while todo and len(flying) < 2 * self._jobs:
                    flying[self._workers().submit(function, tasks[todo[-1]])] = todo[-1]
                    todo.pop()
                done, _ = wait(flying, self._stall_s, FIRST_COMPLETED)
                if not done:
                    raise BrokenProcessPool
                for future in done:
                    result = future.result()
                    yield flying.pop(future), result
            except BrokenProcessPool:
                suspects += sorted(flying.values())
                flying.clear()
                self.close()

    def _alone(self, function: Callable[[T], R], task: T) -> R | Died:
        self.close()
        try:
            return self._workers(1).submit(function, task).result(self._stall_s)
        except BrokenProcessPool:
            return Died()
        except FutureTimeout:
            return Died(f"no answer for {self._stall_s:g} s, twice")
        finally:
            self.close()

    def _workers(self, jobs: int | None = None) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # forking is unsafe once threads exist
            self._pool = ProcessPoolExecutor(jobs or self._jobs, mp_context=context, initializer=_start_worker)
        return self._pool


def _start_worker() -> None:
    """Interrupts are the parent's business, and a worker must not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)
