"""Contexts longer than the drafter was trained on: drafts there fail more often. A modifier of every kind."""

import numpy as np

from sim.rng import Ints, Streams
from sim.spec import Spec
from sim.units import PositiveCount, Probability
from sim.workload.requests import RequestTable

_NEVER = 255


class ContextDecay(Spec):
    """Beyond the window that the drafter was trained on, each draft that would be accepted is kept with a probability.

    Heads trained on long text hold to 32k and more, others collapse beyond their window: both numbers are the
    drafter's own and have no default. Flat up to the window; there is no public curve to justify more shape.

    Attributes:
        training_tokens: context (prompt and output) up to which acceptance is as stated.
        keep_beyond: P(a draft on a later position is accepted | it would be within the window).
    """

    training_tokens: PositiveCount
    keep_beyond: Probability

    def reach(self, requests: RequestTable, streams: Streams) -> Ints:
        """(T,) drafts from each output position up to the next one that fails for its context, at most 255.

        One uniform per position: along a path each position is judged once, so the draws of a path are independent.
        """
        rows = requests.output_tokens
        position = np.arange(requests.num_positions) - np.repeat(requests.output_offset, rows)
        late = position + np.repeat(requests.prompt_tokens, rows) >= self.training_tokens
        fails = late & (streams.per_position("acceptance/context", rows) >= self.keep_beyond)
        here = np.arange(len(fails))
        last = np.repeat(requests.output_offset + rows, rows) + _NEVER  # no failure left in this row
        following = np.minimum.accumulate(np.where(fails, here, len(fails) + _NEVER)[::-1])[::-1]
        inside = following < np.repeat(requests.output_offset + rows, rows)
        reach: Ints = np.minimum(np.where(inside, following, last) - here, _NEVER)
        return reach
