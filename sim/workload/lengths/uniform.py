"""`uniform`: every whole length between two limits is equally likely."""

from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, model_validator

from sim.rng import Floats
from sim.workload.lengths.base import LENGTHS, LengthDistribution, Tokens, check_limits
from sim.workload.requests import Ints


@LENGTHS.register
class Uniform(LengthDistribution):
    """`min`, `min` + 1, ..., `max` tokens, both ends included."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "uniform", "min": 100, "max": 300}]})

    kind: Literal["uniform"] = "uniform"
    min: Tokens
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        check_limits(self.min, self.max)
        return self

    def draw(self, uniforms: Floats, observed: Ints | None = None) -> Ints:
        """By inverse CDF."""
        steps: Ints = (uniforms * (self.max - self.min + 1)).astype(np.int64)
        return self.min + steps
