"""`guesses`: the best of several independent guesses counts, as in Lookahead decoding."""

from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.acceptance.base import ACCEPTANCE, Floats
from sim.acceptance.depth import SpreadDepthRates, conditional_from_survival
from sim.units import PositiveCount, Probability


@ACCEPTANCE.register
class Guesses(SpreadDepthRates):
    """b independent guesses, each a chain whose tokens match with one rate; a step accepts the longest match.

    P(at least i accepted) = 1 - (1 - rate^i)^b (Lookahead decoding, arXiv 2402.02057, Eq. 4 and 5), where b is at most
    the verified n-grams G. The bonus token is not
    counted. Guesses that share beginnings are not independent: fit the rate to a measured mean.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "guesses", "rate": 0.3, "guesses": 7}]})

    kind: Literal["guesses"] = "guesses"
    rate: Probability = Field(description="P(a guessed token matches | those before it did), of one guess")
    guesses: PositiveCount = Field(description="b, independent guesses per step")

    def conditional_rates(self, max_draft_tokens: int) -> Floats:
        """From the closed form."""
        match = self.rate ** np.arange(1.0, max_draft_tokens + 1.0)
        return conditional_from_survival(1.0 - (1.0 - match) ** self.guesses)
