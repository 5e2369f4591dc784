"""Counters of speculative decoding over a window, with vLLM's names and definitions.

Accepted drafts count before trimming at the end of an output, as in the engine; `tokens_per_step` counts tokens handed
out. Identities (tested): the histogram sums to `num_drafts`; sum j x histogram[j] = accepted <= drafted.
"""

from dataclasses import dataclass

import numpy as np

from sim.metrics.latency import Chunks
from sim.metrics.record import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class SpeculationCounts:
    """Totals over some emissions. Arrays over draft positions have length K, the largest number drafted in a step.

    For token trees K is the depth: position i is depth i, and a tree counts as drafted up to as many positions as it
    has nodes.

    Attributes:
        num_steps: request-steps: emissions, those without drafts included (also the first token after prefill).
        num_tokens: tokens handed out.
        num_drafts: request-steps that verified at least one draft.
        num_draft_tokens, num_accepted_tokens: drafts verified, and accepted; the bonus token is in neither.
        num_trimmed_tokens: accepted or bonus tokens thrown away behind the end of an output.
        accepted_per_pos: [i] drafts whose first i+1 tokens were all accepted (vLLM `num_accepted_tokens_per_pos`).
        drafted_per_pos: [i] drafts with at least i+1 tokens (vLLM `num_draft_tokens_per_pos`).
        reached_per_pos: [i] drafts with at least i+1 tokens whose first i were all accepted.
        histogram: [j] drafts that accepted exactly j tokens, j = 0..K.
        tokens_histogram: [t] request-steps that handed out exactly t tokens, t = 0..K+1.
    """

    num_steps: int
    num_tokens: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_trimmed_tokens: int
    accepted_per_pos: Ints
    drafted_per_pos: Ints
    reached_per_pos: Ints
    histogram: Ints
    tokens_histogram: Ints

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens; this is not the per-token alpha of theory."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted / drafts: mean tokens per draft with the bonus token included."""
        return 1.0 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens handed out / request-steps: a ratio of sums."""
        return self.num_tokens / self.num_steps if self.num_steps else None

    @property
    def per_position_rates(self) -> Floats:
        """accepted_per_pos / drafts: vLLM's unconditional rates; mix "not drafted" with "rejected" when K varies."""
        return _ratio(self.accepted_per_pos, np.full_like(self.accepted_per_pos, self.num_drafts))

    @property
    def per_position_rates_drafted(self) -> Floats:
        """accepted_per_pos / drafted_per_pos: unconditional rates over the drafts that were that long."""
        return _ratio(self.accepted_per_pos, self.drafted_per_pos)

    @property
    def conditional_rates(self) -> Floats:
        """accepted_per_pos / reached_per_pos: chance that a draft token is accepted once it is looked at."""
        return _ratio(self.accepted_per_pos, self.reached_per_pos)


def _ratio(top: Ints, bottom: Ints) -> Floats:
    return np.where(bottom > 0, top / np.maximum(bottom, 1), np.nan)


def count_speculation(emissions: Chunks, chosen: Bools, tree_depth: int | None = None) -> SpeculationCounts:
    """Counters over the chosen emissions, shape (C,); `tree_depth` as in `RunRecord`."""
    drafted, accepted = emissions.drafted[chosen], emissions.accepted[chosen]
    tokens = emissions.tokens[chosen]
    longest = int(drafted.max(initial=0))
    deepest = longest if tree_depth is None else min(longest, tree_depth)
    # table[d, a]: request-steps that verified d drafts and accepted a of them.
    table = np.bincount(drafted * (longest + 1) + accepted, minlength=(longest + 1) ** 2)
    table = table.reshape(longest + 1, longest + 1)
    histogram = table[1:].sum(axis=0)[: deepest + 1]
    return SpeculationCounts(
        num_steps=len(tokens),
        num_tokens=int(tokens.sum()),
        num_drafts=int(table[1:].sum()),
        num_draft_tokens=int(drafted.sum()),
        num_accepted_tokens=int(accepted.sum()),
        num_trimmed_tokens=int((accepted + 1 - tokens).sum()),
        accepted_per_pos=_tail_sums(histogram),
        drafted_per_pos=_tail_sums(table.sum(axis=1))[:deepest],
        reached_per_pos=np.array([table[i + 1 :, i:].sum() for i in range(deepest)], np.int64),
        histogram=histogram,
        tokens_histogram=np.bincount(tokens, minlength=deepest + 2),
    )


def _tail_sums(counts: Ints) -> Ints:
    """[i] = sum of counts[i+1:]."""
    return counts[::-1].cumsum()[::-1][1:]
