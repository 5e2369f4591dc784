import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from sim.experiment.executor import Died, local_executor
from sim.experiment.worker import Worker


def square(number: int) -> int:
    return number * number


def kill_worker_on(task: tuple[int, str]) -> int:
    """Number 3 kills its worker every time, number 5 only once."""
    number, folder = task
    marker = Path(folder) / "killed"
    if number == 3 or (number == 5 and not marker.exists()):
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def unsendable(number: int) -> object:
    return threading.Lock() if number else number


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_done_once(jobs: int) -> None:
    with local_executor(jobs) as executor:
        for count in (7, 1, 3):  # an executor may be used again
            done = executor.run(square, list(range(count)))
            assert sorted(done) == [(i, i * i) for i in range(count)]


def test_a_killed_worker_costs_only_the_task_that_kills_it_again(tmp_path: Path) -> None:
    tasks = [(i, str(tmp_path)) for i in range(8)]
    with local_executor(2) as executor:
        results = dict(executor.run(kill_worker_on, tasks))
        assert dict(executor.run(square, [2, 3])) == {0: 4, 1: 9}
    assert isinstance(results.pop(3), Died)
    assert results == {i: i for i in range(8) if i != 3}


def test_a_worker_killed_halfway_through_its_answer_is_not_waited_for() -> None:
    worker = Worker()
    worker.give(bytes, 10_000_000)  # longer than a pipe holds
    assert worker.pipe.poll(30)
    (process,) = multiprocessing.active_children()
    process.kill()
    assert worker.answer() is None
    worker.kill()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_unexpected_error_is_raised_here(jobs: int) -> None:
    with local_executor(jobs) as executor, pytest.raises(ValueError, match="no 1") as raised:
        list(executor.run(fail, [1, 1]))
    assert jobs == 1 or "in fail" in raised.value.__notes__[0]


def test_an_answer_that_cannot_be_sent_is_an_error_and_not_a_wait() -> None:
    with local_executor(2) as executor, pytest.raises(TypeError, match="cannot be sent"):
        list(executor.run(unsendable, [0, 1]))


def test_leaving_early_stops_the_workers() -> None:
    started = time.monotonic()
    with local_executor(2) as executor:
        running = executor.run(time.sleep, [0, 30, 30])
        assert next(running)[0] == 0
        running.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 10
