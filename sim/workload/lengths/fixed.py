"""`fixed`: all lengths are the same."""

from typing import Literal

import numpy as np
from pydantic import ConfigDict

from sim.rng import Floats
from sim.workload.lengths.base import LENGTHS, LengthDistribution, Tokens
from sim.workload.requests import Ints


@LENGTHS.register
class Fixed(LengthDistribution):
    """Always `value` tokens."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "fixed", "value": 512}]})

    kind: Literal["fixed"] = "fixed"
    value: Tokens

    def draw(self, uniforms: Floats, observed: Ints | None = None) -> Ints:
        """`value` for every row."""
        return np.full(len(uniforms), self.value, np.int64)
