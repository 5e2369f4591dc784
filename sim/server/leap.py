"""Going through epochs: many foreseeable steps in one SimPy event, until something happens that they must not miss."""

import math
from collections.abc import Container

import simpy

from sim.scheduler.epoch import Epoch, enter_epoch
from sim.scheduler.schedule import Scheduler
from sim.server.pricing import StepPricer
from sim.server.recorder import Recorder

#: Steps without an epoch after one had to close, at most: entering costs about a step per running request.
LONGEST_DETOUR = 64


class Leaper:
    """Takes steps of an epoch on behalf of a server.

    Args:
        env: tells the time and the time of the next event.
        scheduler, pricer, recorder: the server's.
        awaited: rows whose end somebody waits for, so that time must stop there.
        enabled: False never leaps.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        pricer: StepPricer,
        recorder: Recorder,
        awaited: Container[int],
        enabled: bool,
    ) -> None:
        self._env, self._scheduler, self._pricer, self._recorder = env, scheduler, pricer, recorder
        self._awaited = awaited
        self._epoch: Epoch | None = None
        self._steps_to_epoch: float = 0 if enabled else math.inf

    @property
    def running(self) -> int:
        """Requests that run inside the current epoch."""
        return self._epoch.count if self._epoch else 0

    def leap(self) -> tuple[int, list[int]]:
        """Take steps until an awaited request finishes, an event is due, or the scheduler has to decide something.

        Returns:
            The nanoseconds they last, 0 for none (then the scheduler is up to date), and the awaited rows that finish
            at their end.
        """
        if self._epoch is None and self._steps_to_epoch <= 0:
            self._epoch = enter_epoch(self._scheduler, self._recorder.num_steps)
        if self._epoch is None:
            self._steps_to_epoch -= 1
            return 0, []
        epoch, start, until = self._epoch, int(self._env.now), self._env.peek()
        now, finished = start, list[int]()
        while not finished and (now < until or now == start):
            lasts_ns = self._take(epoch, now)
            if not lasts_ns:
                break
            now += lasts_ns
            done = epoch.complete(self._recorder.num_steps - 1)
            finished = [row for row in done if row in self._awaited]
        self._recorder.walked(epoch.ended)
        epoch.ended.clear()
        return now - start, finished

    def _take(self, epoch: Epoch, now: int) -> int:
        """One step of the epoch; 0 nanoseconds when it had to be closed instead."""
        recorder = self._recorder
        step = epoch.next(recorder.num_steps)
        if step is None:
            self._steps_to_epoch = min(epoch.count, LONGEST_DETOUR)
            recorder.walked(epoch.close(recorder.num_steps))
            self._epoch = None
            return 0
        cost = self._pricer.price(step.work)
        if step.admitted:
            recorder.admitted(step.admitted, now)
        recorder.step(now, cost, step.facts, step.blocks)
        return cost.total_ns
