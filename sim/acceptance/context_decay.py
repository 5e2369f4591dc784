"""Contexts longer than the drafter was trained on: drafts there fail more often. A modifier of every kind."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.rng import Streams
from sim.spec import Spec
from sim.units import PositiveCount, Probability
from sim.workload.requests import RequestTable

Counts = NDArray[np.uint8]

_NEVER = 255


class ContextDecay(Spec):
    """Beyond the window that the drafter was trained on, each draft that would be accepted is kept with a probability.

    Heads trained on long text hold to 32k and more, others collapse beyond their window: both numbers are the
    drafter's own and have no default. Flat up to the window; there is no public curve to justify more shape.
    """

    training_tokens: PositiveCount = Field(
        description="context (prompt and output) up to which acceptance is as stated"
    )
    keep_beyond: Probability = Field(
        description="P(a draft on a later position is accepted | it would be within the window)"
    )

    def reach(self, requests: RequestTable, streams: Streams) -> Counts:
        """(T,) drafts from each output position up to the next one that fails for its context, at most 255.

        One uniform per position: along a path each position is judged once, so the draws of a path are independent.
        """
        rows = requests.output_tokens
        position = np.arange(requests.num_positions) - np.repeat(requests.output_offset, rows)
        late = position + np.repeat(requests.prompt_tokens, rows) >= self.training_tokens
        return until_next(late & (streams.per_position("acceptance/context", rows) >= self.keep_beyond), requests)


def until_next(fails: NDArray[np.bool_], requests: RequestTable) -> Counts:
    """(T,) positions from each one up to the next that fails in the same row, 255 where none does.

    The smaller of this and a tape is the tape with every run of accepted drafts ended at the first failure.
    """
    places, none = np.arange(len(fails)), len(fails) + _NEVER
    following = np.minimum.accumulate(np.where(fails, places, none)[::-1])[::-1]
    ends = np.repeat(requests.output_offset + requests.output_tokens, requests.output_tokens)
    return np.where(following < ends, np.minimum(following - places, _NEVER), _NEVER).astype(np.uint8)
