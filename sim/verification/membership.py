"""`membership`: keeps every draft inside the target's top k or top p. Lossy, often mistaken for exact."""

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.verification.base import VERIFICATION, Floats, TokenRule


@VERIFICATION.register
class Membership(TokenRule):
    """A sampled draft is accepted iff it is among the target's likeliest tokens; otherwise the target samples.

    `top_k`: the k most probable tokens. `top_p`: the smallest set of most probable tokens that holds this share. With
    both, a draft must be in both sets.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "membership", "top_k": 2}, {"kind": "membership", "top_p": 0.9}]}
    )

    lossless: ClassVar[bool] = False
    source: ClassVar[str] = "Popular notes on speculative decoding, often beside the claim that nothing changes"

    kind: Literal["membership"] = "membership"
    top_k: int | None = Field(default=None, ge=1, description="size of the set")
    top_p: float | None = Field(default=None, gt=0, le=1, description="share of p that the set holds")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.top_k is None and self.top_p is None:
            raise ValueError("needs top_k or top_p: without them every draft would be accepted")
        return self

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """1 for members."""
        order = np.argsort(-p, axis=-1, kind="stable")
        rank = np.argsort(order, axis=-1, kind="stable")
        member = np.ones(p.shape, np.bool_) if self.top_k is None else rank < self.top_k
        if self.top_p is not None:
            ranked = np.take_along_axis(p, order, axis=-1)
            before = np.cumsum(ranked, axis=-1) - ranked
            member = member & (np.take_along_axis(before, rank, axis=-1) < self.top_p)
        return np.where(member, 1.0, 0.0)

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """A sample of p, whenever the draft is outside."""
        return p * self.failing(p, d)
