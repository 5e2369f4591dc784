"""`trace`: lengths of recorded requests; prompt and output of a request come from the same trace row."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from sim.rng import Floats
from sim.workload.lengths.base import LENGTHS, LengthDistribution
from sim.workload.requests import Ints


@LENGTHS.register
class FromTrace(LengthDistribution):
    """The lengths in `workload.trace`, row by row (which row: see `Workload`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "trace"}]})

    kind: Literal["trace"] = "trace"

    needs_trace: ClassVar[bool] = True

    def draw(self, uniforms: Floats, observed: Ints | None = None) -> Ints:
        """`observed` itself; the uniforms are not used."""
        return _required(observed)

    def mean_tokens(self, observed: Ints | None = None) -> float:
        """Mean over the window."""
        return float(_required(observed).mean())

    def max_tokens(self, observed: Ints | None = None) -> int:
        """Longest of the window."""
        return int(_required(observed).max())


def _required(observed: Ints | None) -> Ints:
    if observed is None:
        raise ValueError("lengths of kind `trace` need the trace")
    return np.asarray(observed)
