"""One process that runs pure functions over tasks, one at a time, and shows at once when it has died.

Each worker has a pipe of its own whose far end only it holds. When it dies, even halfway through an answer, the pipe
ends: nobody waits for the rest. (`ProcessPoolExecutor` shares one pipe among its workers and keeps both ends open here:
a worker killed while it answers leaves it waiting for ever, and Python then never exits.)
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for

#: A killed process is gone within milliseconds, unless the machine is in deep trouble.
GONE_S = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker sends back: the result of a task, or the error it raised."""

    value: object
    failed: bool = False

    def result(self) -> object:
        """The result.

        Raises:
            BaseException: what the task raised, with the worker's traceback as a note.
        """
        if isinstance(self.value, BaseException) and self.failed:
            raise self.value
        return self.value


class Worker:
    """A spawned process (forking is unsafe once threads exist); it ends with this one at the latest."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, function: Callable[..., object], task: object) -> None:
        """Start a task. The worker must be idle; one that has died meanwhile shows in `answer`."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send((function, task))

    def answer(self) -> Answer | None:
        """What became of the task, waiting for it; None when the worker died over it."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):  # OSError: it ended halfway
            return None
        assert isinstance(answer, Answer)
        return answer

    def kill(self) -> None:
        """Stop it now, whatever it does."""
        self._process.kill()
        self._process.join(GONE_S)
        self.pipe.close()


def _work(pipe: Connection) -> None:
    """The worker's life. Interrupts are the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    while True:
        try:
            function, task = pipe.recv()
        except EOFError:
            return
        answer = _outcome(function, task)
        try:
            pipe.send(answer)
        except OSError:  # the parent is gone
            return
        except Exception as error:  # pickle raises errors of many kinds, before anything is sent
            pipe.send(Answer(TypeError(f"a task's answer cannot be sent: {error}"), failed=True))


def _outcome(function: Callable[..., object], task: object) -> Answer:
    try:
        return Answer(function(task))
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return Answer(error, failed=True)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)
