"""The server with asynchronous scheduling: the host schedules step t + 1 while the GPU runs step t.

A second loop beside `Server._serve`, not flags inside it. Step time is max(host, GPU) instead of their sum,
except where the engine profile already holds what sticks out beside the GPU.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import simpy

from sim.scheduler.overlapped import OverlappedScheduler
from sim.scheduler.plan import StepFacts, StepPlan
from sim.server.pricing import StepCost
from sim.server.server import Server


class Scheduled(NamedTuple):
    """A step that waits for the GPU: its plan, and what the server looked like when it was scheduled."""

    plan: StepPlan
    facts: StepFacts
    blocks: int


class OverlappedServer(Server):
    """A `Server` over an `OverlappedScheduler`."""

    _scheduler: OverlappedScheduler

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        env, scheduler = self._env, self._scheduler
        scheduled: Scheduled | None = None
        while True:
            if scheduled is None:
                if scheduler.idle:
                    self._wake = env.event()
                    yield self._wake
                scheduled = self._schedule()
                continue
            cost, start = self._overlap(scheduled.plan), int(env.now)
            self._recorder.admitted(scheduled.plan.admitted, start)
            following = self._schedule()
            yield env.timeout(cost.total_ns)
            emitted = scheduler.commit(scheduled.plan)
            facts = scheduled.facts._replace(num_emitting=len(emitted.cursor))
            self._recorder.step(start, cost, facts, scheduled.blocks)
            self._recorder.emissions(emitted.cursor, emitted.drafts)
            self._retire(emitted.finished)
            scheduled = following

    def _schedule(self) -> Scheduled | None:
        """The next step, or None when nothing can run yet."""
        plan = self._scheduler.schedule()
        self._retire(self._scheduler.waiting.take_rejected(), served=False)
        if not plan.forward.num_tokens:
            return None
        return Scheduled(plan, self._facts(plan), self._scheduler.pool.used)

    def _overlap(self, plan: StepPlan) -> StepCost:
        """Host time hides behind the GPU; only what sticks out is counted."""
        cost = self._pricer.price(plan.work)
        gpu_ns = cost.draft_ns + cost.target_ns
        host_ns = cost.host_ns if self._pricer.host_is_remainder else max(0, cost.host_ns - gpu_ns)
        return StepCost(max(1, gpu_ns + host_ns), cost.draft_ns, cost.target_ns, host_ns, cost.price)
