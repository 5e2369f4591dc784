"""The server with asynchronous scheduling: the host schedules step t + 1 while the GPU runs step t.

A second loop beside `Server._serve`, not flags inside it. Step time is max(host, GPU) instead of their sum.
"""

from collections.abc import Generator
from typing import Any

import simpy

from sim.scheduler.overlapped import OverlappedScheduler
from sim.scheduler.plan import StepPlan
from sim.server.pricing import StepCost
from sim.server.server import Server


class OverlappedServer(Server):
    """A `Server` over an `OverlappedScheduler`."""

    _scheduler: OverlappedScheduler

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        env, scheduler = self._env, self._scheduler
        plan: StepPlan | None = None
        while True:
            if plan is None:
                if scheduler.idle:
                    self._wake = env.event()
                    yield self._wake
                plan = self._schedule()
                continue
            cost = self._overlap(plan)
            start, facts, blocks = int(env.now), self._facts(plan), scheduler.pool.used
            self._recorder.admitted(plan.admitted, start)
            following = self._schedule()
            yield env.timeout(cost.total_ns)
            emitted = scheduler.commit(plan)
            self._recorder.step(start, cost, blocks)
            self._recorder.facts(facts._replace(num_emitting=len(emitted.cursor)))
            self._recorder.emissions(emitted.cursor, emitted.drafts)
            self._retire(emitted.finished)
            plan = following

    def _schedule(self) -> StepPlan | None:
        """The next plan, or None when nothing can run yet."""
        plan = self._scheduler.schedule()
        self._retire(self._scheduler.waiting.take_rejected())
        return plan if plan.forward.num_tokens else None

    def _overlap(self, plan: StepPlan) -> StepCost:
        """Host time hides behind the GPU; only what sticks out is counted."""
        cost = self._pricer.price(plan.forward, plan.drafting_seqs, plan.drafting_kv, plan.k_next)
        gpu_ns = cost.draft_ns + cost.target_ns
        host_ns = max(0, cost.host_ns - gpu_ns)
        return StepCost(max(1, gpu_ns + host_ns), cost.draft_ns, cost.target_ns, host_ns, cost.price)
