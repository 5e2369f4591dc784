"""The server: where simulated time passes. One SimPy event per engine step, or per run of foreseeable steps."""

from collections.abc import Generator, Iterable
from typing import Any

import simpy

from sim.cost.base import BoundCost
from sim.draft_length.base import NO_SWITCHING, Switching
from sim.scheduler.plan import StepFacts, StepPlan
from sim.scheduler.schedule import Scheduler
from sim.server.leap import Leaper
from sim.server.pricing import StepPricer
from sim.server.recorder import Recorder
from sim.speculation.base import Drafter


class Server:
    """One engine: continuous batching over a scheduler, priced by a cost model and a drafter.

    Args:
        env: the simulation; its clock counts integer nanoseconds.
        scheduler: what runs in each step.
        cost: time of the target's passes and of the host.
        drafter: time of drafting after each target pass.
        recorder: where events are written down.
        leap: go through foreseeable steps in epochs (same results, faster).
        switching: what it costs that K changes.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        cost: BoundCost,
        drafter: Drafter,
        recorder: Recorder,
        leap: bool = True,
        switching: Switching = NO_SWITCHING,
    ) -> None:
        self._env, self._scheduler, self._recorder = env, scheduler, recorder
        self._pricer = StepPricer(cost, drafter, switching)
        self._done: dict[int, simpy.Event] = {}
        self._leaper = Leaper(env, scheduler, self._pricer, recorder, self._done, leap)
        self._wake = env.event()
        env.process(self._serve())

    def submit(self, row: int) -> simpy.Event:
        """Hand a request to the server now; its event fires when its last token is out (False: it was rejected)."""
        done = self._done[row] = self._env.event()
        self.post(row)
        return done

    def post(self, row: int) -> None:
        """Hand a request to the server now, when nobody waits for its end."""
        self._recorder.arrival(row, int(self._env.now))
        if not self._scheduler.add(row):
            self._retire([row], served=False)
        elif not self._wake.triggered:
            self._wake.succeed()

    @property
    def num_waiting(self) -> int:
        """Requests that wait to be admitted."""
        return len(self._scheduler.waiting.queue)

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        env, scheduler = self._env, self._scheduler
        while True:
            if scheduler.idle and not self._leaper.running:
                self._wake = env.event()
                yield self._wake
            leapt_ns, finished = self._leaper.leap()
            if leapt_ns:
                yield env.timeout(leapt_ns)
                self._retire(finished)
                continue
            plan = scheduler.schedule()
            self._retire(scheduler.waiting.take_rejected(), served=False)
            if not plan.forward.num_tokens:
                continue
            cost = self._pricer.price(plan.work)
            start, facts, blocks = int(env.now), self._facts(plan), scheduler.pool.used
            self._recorder.admitted(plan.admitted, start)
            yield env.timeout(cost.total_ns)
            emitted = scheduler.commit(plan)
            self._recorder.step(start, cost, facts, blocks)
            self._recorder.emissions(emitted.cursor, emitted.drafts)
            self._retire(emitted.finished)

    def _facts(self, plan: StepPlan) -> StepFacts:
        scheduler, forward = self._scheduler, plan.forward
        return StepFacts(
            num_seqs=forward.num_seqs,
            num_emitting=len(plan.drafts),
            prefill_tokens=plan.prefill_tokens,
            num_tokens=forward.num_tokens,
            draft_tokens=forward.num_draft_tokens,
            num_draft_tokens=plan.k_next,
            running=scheduler.running.count,
            waiting=len(scheduler.waiting.queue),
            preemptions=len(plan.preempted),
        )

    def _retire(self, rows: Iterable[int], served: bool = True) -> None:
        for row in rows:
            if row in self._done:
                self._done.pop(row).succeed(served)
