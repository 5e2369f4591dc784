"""A drafter that stops at K = 0 misses tokens; when it starts again it has to prefill them first."""

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import NO_ATTENTION, AttentionLoad

Ints = NDArray[np.int64]


class DrafterSync:
    """What the drafter has seen of each request while it stands still.

    Attributes:
        stopped: the drafter stands still.
    """

    def __init__(self, num_requests: int) -> None:
        self.stopped = False
        self._seen = np.zeros(num_requests, np.int64)

    def switch(self, rows: Ints, computed: Ints) -> AttentionLoad:
        """Stop or start the drafter in a step.

        Args:
            rows: all running requests.
            computed: tokens of each that were computed before this step.

        Returns:
            What it has to prefill before its first pass of this step.
        """
        self.stopped = not self.stopped
        if self.stopped:
            self._seen[rows] = computed
            return NO_ATTENTION
        behind = computed > self._seen[rows]
        seen, computed = self._seen[rows][behind], computed[behind]
        missed = computed - seen
        pairs = int(missed @ seen) + int((missed * (missed + 1) // 2).sum())
        return AttentionLoad(len(missed), int(missed.sum()), int(computed.sum()), pairs)

    def forget(self, rows: list[int]) -> None:
        """These requests lose their KV, the drafter's too."""
        self._seen[rows] = 0
