"""Runs tasks on an existing Dask cluster (extra `specsim[dask]`); `distributed` is imported when one is asked for.

The workers must run the same specsim, Python and numpy, which is checked first: results are the same bytes wherever
they are made. Tasks are small and results come back to this process, which alone writes files.
"""

import itertools
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import sim
from sim.errors import SimError
from sim.experiment.executor import STALL_S, Died, Executor
from sim.experiment.manifest import code_digest

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")

#: A task whose worker dies is tried again this often elsewhere before it is given up.
RETRIES = 2
#: Tasks in flight per worker thread: enough to hide the way there and back.
IN_FLIGHT = 4


class ClusterError(SimError):
    """The cluster cannot be reached, has no workers, or runs other versions."""


@contextmanager
def dask_executor(scheduler: str, stall_s: float = STALL_S, timeout_s: float = 30.0) -> Iterator[Executor]:
    """An executor on the cluster of this scheduler; the cluster itself is left as it is.

    Args:
        scheduler: address such as `tcp://host:8786`, or the path of a scheduler file.
        stall_s: when no task finishes for this long, those in flight are given up.
        timeout_s: how long to wait for the scheduler and its first worker.

    Raises:
        ClusterError: not installed, not reachable, no workers, or other versions there.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError("--executor dask needs the extra `dask`: pip install 'specsim[dask]'") from error
    where = {"address": scheduler} if "://" in scheduler else {"scheduler_file": str(Path(scheduler))}
    try:
        client = Client(timeout=timeout_s, set_as_default=False, **where)
        client.wait_for_workers(1, timeout=timeout_s)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(f"{scheduler}: no Dask cluster answers there ({error or type(error).__name__})") from error
    try:
        _check_versions(client)
        yield DaskExecutor(client, stall_s)
    finally:
        client.close()


class DaskExecutor:
    """Runs tasks through a connected client.

    Args:
        client: stays open.
        stall_s: when no task finishes for this long, those in flight are given up.
    """

    def __init__(self, client: "Client", stall_s: float = STALL_S) -> None:
        self._client, self._stall_s = client, stall_s

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Died]]:
        """Tasks in order, a few per worker thread at a time; the others follow as results come in."""
        from distributed.scheduler import KilledWorker

        todo = iter(range(len(tasks)))
        flying: dict[Any, int] = {}
        done: Queue[Any] = Queue()

        def submit(count: int) -> None:
            for index in itertools.islice(todo, count):
                future = self._client.submit(function, tasks[index], retries=RETRIES, pure=False)
                flying[future] = index
                future.add_done_callback(done.put)

        submit(IN_FLIGHT * sum(self._client.nthreads().values()))
        while flying:
            try:
                future = done.get(timeout=self._stall_s)
            except Empty:
                yield from ((index, Died(f"no answer for {self._stall_s:g} s")) for index in flying.values())
                return
            index = flying.pop(future)
            try:
                yield index, future.result()
            except KilledWorker:
                yield index, Died("it killed the Dask workers that ran it")
            submit(1)

    def close(self) -> None:
        """Nothing of ours runs any more: futures were released one by one."""


def _versions() -> dict[str, str]:
    """What has to agree for results to be the same bytes."""
    return {
        "specsim": sim.__version__,
        "specsim code": code_digest(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _check_versions(client: "Client") -> None:
    ours = _versions()
    try:
        theirs = client.run(_versions)
    except Exception as error:  # whatever a worker without specsim raises
        raise ClusterError(f"the Dask workers cannot run specsim: {type(error).__name__}: {error}") from error
    for worker, found in theirs.items():
        for name, version in ours.items():
            if found[name] != version:
                raise ClusterError(f"{worker} has {name} {found[name]}, this process {version}: install the same there")
