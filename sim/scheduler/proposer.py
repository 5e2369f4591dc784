"""Asks the K rule what to draft at the end of a step, and turns the answer into work for the drafter."""

import numpy as np
from numpy.typing import NDArray

from sim.draft_length.base import Choice, Load, Outcome, Rule, TableRule
from sim.scheduler.drafter_sync import DrafterSync
from sim.scheduler.plan import StepPlan
from sim.scheduler.running import Running

Ints = NDArray[np.int64]


class Proposer:
    """One run's K rule.

    Attributes:
        table: the rule, when K follows from the batch size alone; then steps can be foreseen.
        sync: what a drafter that stops at K = 0 misses; None for one that goes on.
    """

    def __init__(self, rule: Rule, num_requests: int, drafter_stops: bool) -> None:
        self._rule = rule
        self.table = rule if isinstance(rule, TableRule) else None
        self.sync = DrafterSync(num_requests) if drafter_stops else None

    def look_up(self, plan: StepPlan, table: TableRule) -> None:
        """K by the batch size of the step."""
        plan.k_next = plan.drafts_next = plan.passes = table.at(plan.forward.num_seqs)

    def observe(self, plan: StepPlan, rows: Ints, drafts: Ints, accepted: Ints) -> None:
        """Tell the rule what became of drafts; requests that only prefilled, or opted out, are left out."""
        self._rule.observe(Outcome(plan.forward.num_seqs, rows, drafts, accepted))

    def choose(self, running: Running, plan: StepPlan, cursor: Ints) -> None:
        """Let the rule pick the drafts of the requests that emit in this step; `cursor`: where their next start."""
        sel = plan.emitting
        left = (running.cursor - running.over)[sel] - cursor
        known, speculates = running.known[sel], running.speculates[sel]
        choice = self._rule.choose(Load(plan.forward.num_seqs, running.row[sel], cursor, left, known, speculates))
        if isinstance(choice.drafts, np.ndarray):
            self._spread(plan, choice, choice.drafts * speculates, speculates, known)
        else:
            plan.k_next = plan.drafts_next = plan.passes = choice.drafts

    def keep_up(self, running: Running, plan: StepPlan) -> None:
        """Stop or start the drafter with K."""
        if self.sync is None:
            return
        if plan.preempted:
            self.sync.forget(plan.preempted)
        if (plan.passes == 0) != self.sync.stopped:
            plan.catch_up = self.sync.switch(running.row, running.known - running.lag - plan.num_tokens)

    @staticmethod
    def _spread(plan: StepPlan, choice: Choice, drafts: Ints, speculates: Ints, known: Ints) -> None:
        """Drafts that differ by request: later drafter passes have fewer sequences."""
        passes = drafts if choice.passes is None else choice.passes * speculates
        plan.drafts_next, plan.k_next = drafts, int(drafts.max(initial=0))
        plan.passes = int(passes.max(initial=0))
        part = passes > 0
        plan.drafting_seqs, plan.drafting_kv = int(np.count_nonzero(part)), int(known[part].sum())
        if plan.passes and int(passes[part].min()) < plan.passes:
            depths = np.arange(2, plan.passes + 1)
            taking_part = passes[:, None] >= depths
            seqs = taking_part.sum(axis=0)
            kv_tokens = known @ taking_part + seqs * (depths - 1)
            plan.narrowing = tuple(zip(seqs.tolist(), kv_tokens.tolist(), strict=True))
