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
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Died:
    """A task whose worker died twice (killed, out of memory, crashed)."""

    reason: str = "its worker process died twice (killed, out of memory, or crashed)"


def usable_cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(function: Callable[[T], R], tasks: Sequence[T], jobs: int) -> Iterator[tuple[int, R | Died]]:
    """Run `function` over all tasks; yields (index, result) as they finish, in any order.

    Leaving the iterator early (or an interrupt) stops the workers at once.

    Args:
        function: top-level, pure and picklable; an exception it raises is raised here.
        tasks: picklable; started in this order.
        jobs: workers; with 1 everything runs in this process.
    """
    if min(jobs, len(tasks)) <= 1:
        for index, task in enumerate(tasks):
            yield index, function(task)
        return
    yield from _Pool(function, tasks, min(jobs, len(tasks))).run()


class _Pool(Generic[T, R]):
    """The state of one parallel run."""

    def __init__(self, function: Callable[[T], R], tasks: Sequence[T], jobs: int) -> None:
        self._function, self._tasks, self._jobs = function, tasks, jobs
        self._todo = list(range(len(tasks)))[::-1]
        self._suspects: list[int] = []
        self._flying: dict[Future[R], int] = {}
        self._executor = _new_executor(jobs)

    def run(self) -> Iterator[tuple[int, R | Died]]:
        try:
            yield from self._together()
            for index in self._suspects:
                yield index, self._alone(index)
        finally:
            _stop(self._executor)

    def _together(self) -> Iterator[tuple[int, R]]:
        while self._todo or self._flying:
            try:
                self._submit()
                done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    yield self._flying.pop(future), result
            except BrokenProcessPool:
                self._suspects += sorted(self._flying.values())
                self._flying.clear()
                _stop(self._executor)
                self._executor = _new_executor(self._jobs)

    def _submit(self) -> None:
        """Keep one task waiting for each that runs, so that no worker idles and few are suspected when one dies."""
        while self._todo and len(self._flying) < 2 * self._jobs:
            future = self._executor.submit(self._function, self._tasks[self._todo[-1]])
            self._flying[future] = self._todo.pop()

    def _alone(self, index: int) -> R | Died:
        _stop(self._executor)
        self._executor = _new_executor(1)
        try:
            return self._executor.submit(self._function, self._tasks[index]).result()
        except BrokenProcessPool:
            return Died()


def _new_executor(jobs: int) -> ProcessPoolExecutor:
    # spawn: forking is unsafe once threads exist
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker)


def _stop(executor: ProcessPoolExecutor) -> None:
    """Stop the workers now, whatever they do."""
    processes = list((executor._processes or {}).values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _start_worker() -> None:
    """Interrupts are the parent's business, and a worker must not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)
