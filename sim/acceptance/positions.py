"""Random numbers by output position, and runs of accepted drafts along them. Used by every generated kind.

Along any path of a request each output position is judged at most once: a step that starts at p and accepts a drafts
judges p .. p+a, and the next one starts at p+a+1. So one uniform per position is enough for all depths: draft d of a
step at p sits on position p+d-1 and is accepted iff the uniform there is below the rate of depth d.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import Counts, Floats, Ints, Streams
from sim.workload.requests import RequestTable

Bools = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Positions:
    """Output positions of all rows, each row continued by `beyond` positions past its end (drafts there are verified).

    Attributes:
        requests: the rows.
        beyond: extra positions per row, the largest K.
    """

    requests: RequestTable
    beyond: int

    @cached_property
    def lengths(self) -> Ints:
        """(N,) positions per row."""
        return self.requests.output_tokens + self.beyond

    @cached_property
    def starts(self) -> Ints:
        """(N,) where each row starts in the flat arrays."""
        return np.cumsum(self.lengths) - self.lengths

    def uniforms(self, streams: Streams, name: str) -> Floats:
        """One uniform per position of the stream `name`, flat."""
        return streams.per_position(name, self.lengths)

    def per_row(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Repeat a value per row (N,) over its positions, flat."""
        return np.repeat(values, self.lengths)

    def trim(self, flat: NDArray[Scalar]) -> NDArray[Scalar]:
        """Drop the positions past the end of each output: flat over `RequestTable.output_offset`."""
        runs = np.stack((self.requests.output_tokens, np.full(len(self.lengths), self.beyond)), axis=1).ravel()
        inside = np.repeat(np.tile(np.array([True, False]), len(self.lengths)), runs)
        trimmed: NDArray[Scalar] = flat[inside]
        return trimmed


def leading_accepts(accepted_at: Callable[[int], Bools], max_draft_tokens: int) -> Counts:
    """Drafts accepted by a step that starts at each position: the number of leading depths that accept.

    Args:
        accepted_at: depth d (1-based) -> (T,) whether a draft of that depth sitting on each position would be accepted.
        max_draft_tokens: K; runs are cut there.

    Returns:
        (T,) counts; those of the last K positions of a row may run into the next row and are to be trimmed.
    """
    alive = accepted_at(1).copy()
    counts = alive.astype(np.uint8)
    for depth in range(2, max_draft_tokens + 1):
        reach = len(alive) - depth + 1
        alive[:reach] &= accepted_at(depth)[depth - 1 :]
        alive[max(reach, 0) :] = False
        counts += alive
    return counts
