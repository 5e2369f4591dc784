import os
import signal
import time
from pathlib import Path

import pytest

from sim.experiment.executor import Died, execute


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


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_done_once(jobs: int) -> None:
    assert sorted(execute(square, list(range(7)), jobs)) == [(i, i * i) for i in range(7)]


def test_a_killed_worker_costs_only_the_task_that_kills_it_again(tmp_path: Path) -> None:
    tasks = [(i, str(tmp_path)) for i in range(8)]
    results = dict(execute(kill_worker_on, tasks, 2))
    assert isinstance(results.pop(3), Died)
    assert results == {i: i for i in range(8) if i != 3}


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_unexpected_error_is_raised_here(jobs: int) -> None:
    with pytest.raises(ValueError, match="no 1"):
        list(execute(fail, [1, 1], jobs))


def test_leaving_early_stops_the_workers() -> None:
    started = time.monotonic()
    running = execute(time.sleep, [0, 30, 30], 2)  # type: ignore[arg-type]
    assert next(running)[0] == 0
    running.close()
    assert time.monotonic() - started < 10
