"""The same K in every step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fixed:
    """K whatever the batch."""

    num_draft_tokens: int

    def choose(self, num_seqs: int) -> int:
        """Always `num_draft_tokens`."""
        return self.num_draft_tokens
