"""`per_position`: unconditional rates, as vLLM's `synthetic_acceptance_rates` and its per-position counters."""

import itertools
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, field_validator

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, Floats
from sim.acceptance.depth import SpreadDepthRates, conditional_from_survival
from sim.spec import Seq
from sim.units import Probability


@ACCEPTANCE.register
class PerPosition(SpreadDepthRates):
    """Unconditional rates s_1 >= s_2 >= ...: s_i = P(a step accepts at least i drafts).

    They count drafts only; tokens per step, bonus token included, are 1 + s_1 + ... + s_K. A smaller K uses the first
    K; rates measured at one K are a few per cent off at another (a step after a rejection starts in hard text).
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "per_position", "rates": [0.73, 0.52, 0.36, 0.25, 0.17, 0.12, 0.08]},
                {
                    "kind": "per_position",
                    "rates": [0.75, 0.52, 0.33],
                    "request_spread": {"kind": "logit_normal", "sd": 0.4},
                },
            ]
        }
    )

    counts_accepted: ClassVar[bool] = True

    kind: Literal["per_position"] = "per_position"
    rates: Seq[Probability] = Field(
        min_length=1,
        max_length=MAX_DRAFT_TOKENS,
        description="Unconditional acceptance by position, never increasing, per drafted step; no bonus token counted.",
    )

    @field_validator("rates")
    @classmethod
    def _non_increasing(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        for index, (before, rate) in enumerate(itertools.pairwise(rates), start=2):
            if rate > before:
                raise ValueError(
                    f"unconditional rates cannot increase: rate {index} is {rate:g} after {before:g}; "
                    "for conditional rates use kind `per_depth`"
                )
        return rates

    def max_supported_draft_tokens(self) -> int:
        """As many as there are rates."""
        return len(self.rates)

    def conditional_rates(self, max_draft_tokens: int) -> Floats:
        """s_d / s_(d-1)."""
        return conditional_from_survival(np.array(self.rates[:max_draft_tokens], dtype=np.float64))
