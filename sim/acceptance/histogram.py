"""`histogram`: how many steps accepted 0, 1, 2, ... drafts, as vLLM's `acceptance_histogram`."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, field_validator

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, Floats
from sim.acceptance.depth import SpreadDepthRates, conditional_from_survival
from sim.spec import Seq


@ACCEPTANCE.register
class Histogram(SpreadDepthRates):
    """Steps accept j drafts with the measured frequency, independently of one another; requests may differ.

    j counts drafts only: a step that accepted j emitted j + 1 tokens, the last one recovered or bonus. With a smaller K
    the counts above K are added to K.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "histogram", "counts": [300, 210, 150, 340]}]})

    counts_accepted: ClassVar[bool] = True

    kind: Literal["histogram"] = "histogram"
    counts: Seq[float] = Field(
        min_length=2,
        max_length=MAX_DRAFT_TOKENS + 1,
        description="Number (or share) of verification steps that accepted 0, 1, 2, ... drafts, bonus not counted.",
    )

    @field_validator("counts")
    @classmethod
    def _countable(cls, counts: tuple[float, ...]) -> tuple[float, ...]:
        if min(counts) < 0:
            raise ValueError(f"counts cannot be negative, found {min(counts):g}")
        if sum(counts) <= 0:
            raise ValueError("counts must not all be zero")
        return counts

    def max_supported_draft_tokens(self) -> int:
        """The largest number of accepted drafts with an entry."""
        return len(self.counts) - 1

    def conditional_rates(self, max_draft_tokens: int) -> Floats:
        """From the survivals P(accepted >= d)."""
        counts = np.array(self.counts, dtype=np.float64)
        at_least = np.cumsum(counts[::-1])[::-1] / counts.sum()
        return conditional_from_survival(at_least[1 : max_draft_tokens + 1])
