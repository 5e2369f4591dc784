"""`iid`: every draft is accepted with the same rate. Right on the mean, far too narrow in the tails."""

from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.acceptance.base import ACCEPTANCE, Floats
from sim.acceptance.depth import SpreadDepthRates
from sim.units import Probability


@ACCEPTANCE.register
class Iid(SpreadDepthRates):
    """One acceptance rate alpha for every draft of every step; optionally one alpha per request.

    The rate counts drafts only, never the bonus token: tokens per step are 1 + alpha + ... + alpha^K.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "iid", "rate": 0.7},
                {"kind": "iid", "rate": 0.7, "request_spread": {"kind": "beta", "concentration": 12}},
            ]
        }
    )

    kind: Literal["iid"] = "iid"
    rate: Probability = Field(
        description="alpha = P(a draft is accepted | those before it were), per verification step, bonus token not "
        "counted. Not the 'acceptance rate' of server logs, which is accepted over drafted tokens."
    )

    def conditional_rates(self, max_draft_tokens: int) -> Floats:
        """The same rate at every depth."""
        return np.full(max_draft_tokens, self.rate)
