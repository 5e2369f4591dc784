"""The server: where simulated time passes. One SimPy event per engine step, or per run of steady steps."""

from collections.abc import Generator, Iterable
from typing import Any

import simpy

from sim.cost.base import BoundCost
from sim.scheduler.plan import StepPlan
from sim.scheduler.schedule import Scheduler
from sim.scheduler.steady import steady_run
from sim.server.pricing import StepPricer
from sim.server.recorder import Recorder, StepFacts
from sim.speculation.base import Drafter

#: Steady steps computed at once at most: longer runs win nothing more and waste work when they are cut short.
MAX_LEAP = 64


class Server:
    """One engine: continuous batching over a scheduler, priced by a cost model and a drafter.

    Args:
        env: the simulation; its clock counts integer nanoseconds.
        scheduler: what runs in each step.
        cost: time of the target's passes and of the host.
        drafter: time of drafting after each target pass.
        recorder: where events are written down.
        leap: take runs of steady steps in one event (same results, faster).
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        cost: BoundCost,
        drafter: Drafter,
        recorder: Recorder,
        leap: bool = True,
    ) -> None:
        self._env, self._scheduler, self._recorder, self._may_leap = env, scheduler, recorder, leap
        self._pricer = StepPricer(cost, drafter)
        self._done: dict[int, simpy.Event] = {}
        self._wake = env.event()
        env.process(self._serve())

    def submit(self, row: int) -> simpy.Event:
        """Hand a request to the server now; the event fires when its last token is out or it is rejected."""
        done = self._done[row] = self._env.event()
        self._recorder.arrival(row, int(self._env.now))
        if not self._scheduler.add(row):
            self._retire([row])
        elif not self._wake.triggered:
            self._wake.succeed()
        return done

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        env, scheduler = self._env, self._scheduler
        while True:
            if scheduler.idle:
                self._wake = env.event()
                yield self._wake
            leapt_ns, finished = self._leap()
            if leapt_ns:
                yield env.timeout(leapt_ns)
                self._retire(finished)
                continue
            plan = scheduler.schedule()
            self._retire(scheduler.waiting.take_rejected())
            if not plan.forward.num_tokens:
                continue
            cost = self._pricer.price(plan.forward, plan.drafting_seqs, plan.drafting_kv, plan.k_next)
            start, facts, blocks = int(env.now), self._facts(plan), scheduler.pool.used
            self._recorder.admitted(plan.admitted, start)
            yield env.timeout(cost.total_ns)
            emitted = scheduler.commit(plan)
            self._recorder.step(start, cost, blocks)
            self._recorder.facts(facts)
            self._recorder.emissions(emitted.cursor, emitted.drafts)
            self._retire(emitted.finished)

    def _leap(self) -> tuple[int, list[int]]:
        """Take steady steps until a decision is due or something else happens.

        Returns:
            The nanoseconds they last, 0 for none, and the rows that finish at their end.
        """
        start = now = int(self._env.now)
        until = self._env.peek()
        likely = min(MAX_LEAP, (until - now) // self._pricer.last_step_ns + 1)
        run = steady_run(self._scheduler, int(likely)) if self._may_leap else None
        if run is None:
            return 0, []
        n, k, waiting, taken = run.num_seqs, run.num_draft_tokens, len(self._scheduler.waiting), 0
        while taken < len(run) and (now < until or not taken):
            cost = self._pricer.price(run.forward(taken), run.drafting_seqs, run.known_tokens[taken], k)
            self._recorder.step(now, cost, run.blocks_used[taken])
            now += cost.total_ns
            taken += 1
        self._recorder.facts(StepFacts(n, n, 0, n * (1 + k), n * k, k, n, waiting, 0), taken)
        self._recorder.emissions(run.cursor[:taken], k, taken)
        return now - start, run.commit(taken)

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
            waiting=len(scheduler.waiting),
            preemptions=len(plan.preempted),
        )

    def _retire(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._done.pop(row).succeed()
