"""`per_depth`: conditional rates by draft depth."""

from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, Floats
from sim.acceptance.depth import SpreadDepthRates
from sim.spec import Seq
from sim.units import Probability


@ACCEPTANCE.register
class PerDepth(SpreadDepthRates):
    """Conditional rates q_1, q_2, ...: q_d = P(draft d is accepted | drafts before it were).

    They count drafts only; tokens per step, bonus token included, are 1 + q_1 + q_1 q_2 + ...
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "per_depth", "rates": [0.69, 0.65, 0.64], "extend": "last"},
                {
                    "kind": "per_depth",
                    "rates": [0.63, 0.63, 0.67],
                    "request_spread": {"kind": "beta", "concentration": 15},
                },
            ]
        }
    )

    kind: Literal["per_depth"] = "per_depth"
    rates: Seq[Probability] = Field(
        min_length=1,
        max_length=MAX_DRAFT_TOKENS,
        description="Conditional acceptance by depth, per verification step, bonus token not counted.",
    )
    extend: Literal["refuse", "last"] = Field(
        default="refuse", description="Drafts deeper than the list: refused, or accepted with the last rate."
    )

    def max_supported_draft_tokens(self) -> int | None:
        """As many as there are rates, or no limit when the last one is repeated."""
        return None if self.extend == "last" else len(self.rates)

    def conditional_rates(self, max_draft_tokens: int) -> Floats:
        """The first K rates, the last one repeated as needed."""
        last = len(self.rates) - 1
        return np.array([self.rates[min(depth, last)] for depth in range(max_draft_tokens)], dtype=np.float64)
