"""K by batch size: vLLM's `num_speculative_tokens_per_batch_size`, a list of inclusive [first, last, K] ranges.

As in vLLM: the first range starts at 1, ranges ascend without overlap, gaps and the tail inherit the K before them, and
the key is the number of requests scheduled in this step, while the drafts are verified in the next.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

BatchRange = tuple[int, int, int]


def check_ranges(ranges: Sequence[BatchRange], max_draft_tokens: int) -> None:
    """Refuse tables that vLLM would refuse.

    Raises:
        ValueError: empty, not starting at 1, overlapping, descending, or K outside 0..max_draft_tokens.
    """
    if not ranges:
        raise ValueError("needs at least one [first, last, K] range")
    expected = 1
    for first, last, k in ranges:
        if expected == 1 and first != 1:
            raise ValueError(f"the first range must start at batch size 1, found {first}")
        if first < expected or last < first:
            raise ValueError(f"range [{first}, {last}] must lie above {expected - 1} and not be empty")
        if not 0 <= k <= max_draft_tokens:
            raise ValueError(
                f"K = {k} of range [{first}, {last}] is outside 0..num_speculative_tokens = {max_draft_tokens}"
            )
        expected = last + 1


@dataclass(frozen=True, slots=True)
class BatchTable:
    """K looked up by the number of scheduled requests."""

    first: tuple[int, ...]
    k: tuple[int, ...]

    @classmethod
    def from_ranges(cls, ranges: Sequence[BatchRange]) -> "BatchTable":
        """Bind checked ranges; gaps and the tail inherit, so only the starts matter."""
        return cls(tuple(r[0] for r in ranges), tuple(r[2] for r in ranges))

    def choose(self, num_seqs: int) -> int:
        """K of the last range that starts at or below `num_seqs`."""
        return self.k[max(0, bisect_right(self.first, num_seqs) - 1)]
