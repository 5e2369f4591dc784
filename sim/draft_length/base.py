"""How many tokens to draft for the next step. Contract of this folder."""

from typing import Protocol


class DraftLength(Protocol):
    """A rule that picks K, the drafts per request proposed at the end of a step and verified in the next."""

    def choose(self, num_seqs: int) -> int:
        """K for a step that scheduled `num_seqs` requests."""
        ...
