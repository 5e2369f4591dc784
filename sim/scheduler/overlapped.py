"""Asynchronous scheduling: step t + 1 is scheduled before the tokens of step t are known, as in vLLM V1.

Rules: docs/background/server.md, "Asynchronous scheduling".

`schedule` counts the tokens of the step it hands out as if every draft were accepted, so that budget and KV slots are
charged for the full K; `commit` takes back what was not. A request that is sure to end with the step in flight is not
scheduled again. One that ends because drafts were accepted is found out one step late: its place in the step already
scheduled is wasted.
"""

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Tape
from sim.draft_length.base import Rule
from sim.scheduler.plan import Emitted, SchedulerConfig, StepPlan
from sim.scheduler.running import CURSOR, OVER
from sim.scheduler.schedule import Scheduler
from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]


class OverlappedScheduler(Scheduler):
    """A scheduler that works one step ahead of the tokens: `schedule` may be called before the last plan's `commit`."""

    def __init__(
        self, config: SchedulerConfig, table: RequestTable, tape: Tape, rule: Rule, drafter_stops: bool = False
    ) -> None:
        super().__init__(config, table, tape, rule, drafter_stops)
        self._ahead = table.output_offset.copy()  # where each row's next step starts once all steps in flight are done
        self._position = np.zeros(len(table), np.int64)
        self._in_flight: dict[int, tuple[Ints, Ints]] = {}
        self._end = table.output_offset + table.output_limit(config.max_model_len)

    def schedule(self) -> StepPlan:
        """Schedule a step and count its tokens as if every draft were accepted, then K more."""
        plan, running = super().schedule(), self.running
        sel, ahead = plan.emitting, plan.drafts + 1
        self._in_flight[id(plan)] = (running.row[sel].copy(), ahead)
        running.known[sel] += ahead
        running.placeholders[sel] += ahead
        running.lag[sel] = 1
        running.drafts[sel] = running.speculates[sel] * plan.drafts_next
        return plan

    def _wanted(self) -> Ints:
        """As scheduled in step, but nothing for a request whose last token is sure to be in flight."""
        wanted, running = super()._wanted(), self.running
        wanted[(running.placeholders > 0) & (running.over >= -1)] = 0
        return wanted

    def commit(self, plan: StepPlan) -> Emitted:
        """Replace the assumed tokens of a step by the real ones.

        What ended goes at once; what was preempted meanwhile keeps the tokens of this step (both as in vLLM).
        """
        rows, ahead = self._in_flight.pop(id(plan))
        at, present = self._find(rows)
        cursor = self.table.output_offset[rows] + self.waiting.num_emitted[rows]
        cursor[present] = self.running.cursor[at[present]]
        left = self._end[rows] - cursor
        live = left > 0
        rows, cursor, drafts = rows[live], cursor[live], plan.drafts[live]
        accepted = self.tape.taken(cursor, drafts)
        if self.proposer.table is None:
            judged = plan.verifying[live] & self.table.speculate[rows]
            self.proposer.observe(plan, rows[judged], drafts[judged], accepted[judged])
        tokens = np.minimum(accepted + 1, left[live])
        present, at = present[live], at[live]
        finished = self._advance(at[present], tokens[present], ahead[live][present])
        finished += self.waiting.receive(rows[~present].tolist(), tokens[~present].tolist())
        return Emitted(rows, cursor, tokens, drafts, accepted, finished)

    def _ask_rule(self, plan: StepPlan) -> None:
        """Pick the next drafts before this step is run; the rule learns of it in `commit`."""
        rows = self.running.row[plan.emitting]
        cursor = self._ahead[rows]
        self._ahead[rows] += self.tape.taken(np.minimum(cursor, self._end[rows] - 1), plan.drafts) + 1
        self.proposer.choose(self.running, plan, self._ahead[rows])

    def _advance(self, at: Ints, tokens: Ints, ahead: Ints) -> list[int]:
        """Give running requests their tokens, take back what was assumed; returns the rows that are done."""
        running = self.running
        running.cells[CURSOR : OVER + 1, at] += tokens
        running.known[at] += tokens - ahead
        running.placeholders[at] -= ahead
        return self._remove(at[running.over[at] >= 0])

    def _find(self, rows: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Where these rows run now, and which of them still do (the others ended or were preempted)."""
        running = self.running
        self._position[running.row] = np.arange(running.count)
        at = self._position[rows]
        present = at < running.count
        present[present] = running.row[at[present]] == rows[present]
        return at, present
