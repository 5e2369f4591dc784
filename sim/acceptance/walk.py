"""Walk a tape as a server would, but without a clock: steps and accepted drafts. For survivals, tests and reports."""

from dataclasses import dataclass

import numpy as np

from sim.acceptance.base import Floats, Ints, Tape
from sim.workload.requests import RequestTable


@dataclass(frozen=True, eq=False)
class Walk:
    """Verification steps of all requests at one K, drafts never cut by the end of the output.

    Attributes:
        steps: (N,) steps per request; the first token comes from prefill, so L output tokens leave L - 1.
        tokens: (N,) decoded tokens per request, L - 1.
        accepted_counts: (K+1,) steps that accepted 0..K drafts, bonus token not counted, before cutting at the end.
        drafted_steps: steps in which something was drafted.
        drafted_tokens: drafts of all steps.
    """

    steps: Ints
    tokens: Ints
    accepted_counts: Ints
    drafted_steps: int
    drafted_tokens: int

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens over steps (ratio of sums), bonus token included, the last step cut at the end."""
        return float(self.tokens.sum() / self.steps.sum())

    @property
    def tokens_per_step_error(self) -> float:
        """Standard error of `tokens_per_step` over requests (ratio estimator)."""
        residual = self.tokens - self.tokens_per_step * self.steps
        return float(np.sqrt(np.sum(residual**2)) / self.steps.sum())

    @property
    def survival(self) -> Floats:
        """(K,) share of the steps that accepted at least 1..K drafts."""
        at_least: Floats = np.cumsum(self.accepted_counts[::-1])[::-1][1:] / self.accepted_counts.sum()
        return at_least


def walk(tape: Tape, requests: RequestTable, num_draft_tokens: int) -> Walk:
    """Step through every request with `num_draft_tokens` drafts per step, all rows side by side.

    Args:
        tape: drawn for `requests` with at least this many drafts.
        requests: the rows; whether they speculate is ignored.
        num_draft_tokens: K >= 0.
    """
    rows, position = np.arange(len(requests)), np.ones(len(requests), dtype=np.int64)
    steps, counts = np.zeros(len(requests), dtype=np.int64), np.zeros(num_draft_tokens + 1, dtype=np.int64)
    drafted_steps = drafted_tokens = 0
    rows = rows[requests.output_tokens > 1]
    while len(rows):
        at = requests.output_offset[rows] + position[rows]
        drafted = np.full(len(at), num_draft_tokens)
        if tape.proposed is not None:
            drafted = np.minimum(tape.proposed[at], num_draft_tokens).astype(np.int64)
        accepted = tape.taken(at, drafted).astype(np.int64)
        counts += np.bincount(accepted, minlength=num_draft_tokens + 1)
        drafted_steps, drafted_tokens = drafted_steps + int((drafted > 0).sum()), drafted_tokens + int(drafted.sum())
        steps[rows] += 1
        position[rows] += accepted + 1
        rows = rows[position[rows] < requests.output_tokens[rows]]
    return Walk(steps, requests.output_tokens - 1, counts, drafted_steps, drafted_tokens)
