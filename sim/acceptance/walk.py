"""Walk a tape as a server would, but without a clock: steps and accepted drafts. For survivals, fits and tests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Floats, Ints, Tape
from sim.workload.requests import RequestTable

#: Requests with fewer decoded tokens say too little about themselves to count in `Walk.request_sd`.
SHORTEST_REQUEST = 20


@dataclass(frozen=True, eq=False)
class Walk:
    """Verification steps of all requests at one K, drafts never cut by the end of the output.

    Attributes:
        steps: (N,) steps per request; the first token comes from prefill, so L output tokens leave L - 1.
        tokens: (N,) decoded tokens per request, L - 1.
        accepted_counts: (K+1,) steps that accepted 0..K drafts, bonus token not counted, before cutting at the end.
        drafted_steps: steps in which something was drafted.
        drafted_tokens: drafts of all steps.
        sums: (N, 5) per request, over its steps: accepted drafts, their squares, the products of neighbouring steps,
            and what its first and last step accepted.
    """

    steps: Ints
    tokens: Ints
    accepted_counts: Ints
    drafted_steps: int
    drafted_tokens: int
    sums: Ints

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

    @property
    def request_sd(self) -> float:
        """Standard deviation over requests of tokens per step, requests of at least SHORTEST_REQUEST decoded tokens."""
        long = self.tokens >= SHORTEST_REQUEST
        return float((self.tokens[long] / self.steps[long]).std()) if long.any() else 0.0

    @property
    def lag_correlation(self) -> float:
        """Correlation of the drafts accepted by neighbouring steps of a request, pooled over requests."""
        accepted, squares, products, first, last = self.sums.sum(axis=0).tolist()
        count, pairs = int(self.steps.sum()), int((self.steps - 1).clip(0).sum())
        if not pairs:
            return 0.0
        mean = accepted / count
        variance = squares / count - mean**2
        covariance = (products - mean * (2 * accepted - first - last)) / pairs + mean**2
        return float(covariance / variance) if variance > 0 else 0.0

    def of(self, rows: Ints | NDArray[np.bool_]) -> "Walk":
        """The same statistics of some requests, repeated ones included (a bootstrap sample).

        Counts by number of accepted drafts and drafted totals stay those of all requests.
        """
        whole = self.accepted_counts, self.drafted_steps, self.drafted_tokens
        return Walk(self.steps[rows], self.tokens[rows], *whole, self.sums[rows])


def walk(tape: Tape, requests: RequestTable, num_draft_tokens: int) -> Walk:
    """Step through every request with `num_draft_tokens` drafts per step, all rows side by side.

    Args:
        tape: drawn for `requests` with at least this many drafts.
        requests: the rows; whether they speculate is ignored.
        num_draft_tokens: K >= 0.
    """
    rows, position = np.arange(len(requests)), np.ones(len(requests), dtype=np.int64)
    steps, counts = np.zeros(len(requests), dtype=np.int64), np.zeros(num_draft_tokens + 1, dtype=np.int64)
    sums = np.zeros((len(requests), 5), dtype=np.int64)
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
        _add_step(sums, rows, accepted, first=not steps[rows[0]])
        steps[rows] += 1
        position[rows] += accepted + 1
        rows = rows[position[rows] < requests.output_tokens[rows]]
    return Walk(steps, requests.output_tokens - 1, counts, drafted_steps, drafted_tokens, sums)


def _add_step(sums: Ints, rows: Ints, accepted: Ints, first: bool) -> None:
    """One more step of each of `rows`; all of them are at their first step, or none is."""
    before = sums[rows, 4]
    sums[rows, 0] += accepted
    sums[rows, 1] += accepted**2
    sums[rows, 2] += 0 if first else before * accepted
    if first:
        sums[rows, 3] = accepted
    sums[rows, 4] = accepted
