"""`table_by_k`: a mean per K, for drafters whose first drafts depend on K (block drafters)."""

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Counts, Floats, Streams, Tape
from sim.acceptance.depth import DEPTH_STREAM, conditional_from_survival
from sim.acceptance.length import minimum_variance_rates
from sim.acceptance.positions import Bools, Positions, leading_accepts
from sim.errors import ScenarioError
from sim.theory import alpha_from_tokens
from sim.workload.requests import RequestTable


def _whole_keys(value: Any) -> Any:
    """JSON has no other keys than text."""
    if not isinstance(value, dict):
        return value
    return {int(key) if isinstance(key, str) and key.isdecimal() else key: mean for key, mean in value.items()}


DraftTokens = Annotated[int, Field(ge=1, le=MAX_DRAFT_TOKENS)]


@ACCEPTANCE.register
class TableByK(AcceptanceModel):
    """Mean tokens per step, *including* the bonus token, for every K that is used.

    The means need not grow with K: a block drafter fills a longer block with other, often worse, first drafts. Nothing
    is interpolated: a K without a mean is refused, and a step that verifies fewer drafts than were made (the token
    budget ran out) counts as the next smaller K of the table, or accepts nothing below the smallest. At every K the
    same random numbers sit on a text position, so that different K meet the same text.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "table_by_k", "tokens_per_step": {"15": 3.1, "7": 3.5, "3": 2.6}},
                {"kind": "table_by_k", "tokens_per_step": {"9": 4.32}, "shape": "min_variance"},
            ]
        }
    )

    kind: Literal["table_by_k"] = "table_by_k"
    tokens_per_step: Annotated[dict[DraftTokens, float], BeforeValidator(_whole_keys)] = Field(
        min_length=1, description="K -> mean tokens emitted per verification step, bonus token included"
    )
    shape: Literal["geometric", "min_variance"] = Field(
        default="geometric",
        description="shape of the distribution around each mean: one rate per draft, or as even as possible",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for k, mean in self.tokens_per_step.items():
            if not 1.0 <= mean <= k + 1:
                raise ValueError(f"K = {k}: tokens per step {mean:g}; allowed: 1 to {k + 1}, bonus token included")
        return self

    def __hash__(self) -> int:
        """By value: other specs hash their fields, of which a mapping has none."""
        return hash((self.shape, *sorted(self.tokens_per_step.items())))

    @property
    def ks(self) -> tuple[int, ...]:
        """Every K of the table, ascending."""
        return tuple(sorted(self.tokens_per_step))

    def max_supported_draft_tokens(self) -> int:
        """The largest K of the table."""
        return self.ks[-1]

    def missing_draft_tokens(self, num_draft_tokens: Iterable[int]) -> tuple[int, ...]:
        """Those K that have no mean."""
        return tuple(k for k in num_draft_tokens if k not in self.tokens_per_step)

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact for this K, from its mean and the shape.

        Raises:
            ScenarioError: the table has no such K.
        """
        self.check_draft_tokens(max_draft_tokens)
        mean = self._mean(max_draft_tokens)
        if self.shape == "min_variance":
            return np.array(minimum_variance_rates(mean, max_draft_tokens))
        rates: Floats = alpha_from_tokens(mean, max_draft_tokens) ** np.arange(1.0, max_draft_tokens + 1.0)
        return rates

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw one tape per K, all from one uniform per text position.

        Raises:
            ScenarioError: the table has no such largest K.
        """
        self.check_draft_tokens(max_draft_tokens)
        self._mean(max_draft_tokens)
        positions = Positions(requests, max_draft_tokens)
        draws = positions.uniforms(streams, DEPTH_STREAM)
        by_k = {}
        for k in (k for k in self.ks if k <= max_draft_tokens):
            by_k[k] = positions.trim(_accepted(draws, conditional_from_survival(self.survival(k))))
        return Tape(by_k[max_draft_tokens], by_k=by_k)

    def _mean(self, num_draft_tokens: int) -> float:
        mean = self.tokens_per_step.get(num_draft_tokens, math.nan)
        if math.isnan(mean):
            known = ", ".join(map(str, self.ks))
            raise ScenarioError(
                f"acceptance.tokens_per_step has no K = {num_draft_tokens}; it has {known}, and nothing is interpolated"
            )
        return mean


def _accepted(draws: Floats, rates: Floats) -> Counts:
    """Leading accepted drafts at each position, with one rate per depth."""

    def accepted_at(depth: int) -> Bools:
        below: Bools = draws < rates[depth - 1]
        return below

    return leading_accepts(accepted_at, len(rates))
