"""How long prompts and outputs are. Contract of this folder; written under `prompt_tokens:` and `output_tokens:`."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from sim.rng import Floats
from sim.spec import Family, Spec
from sim.units import PositiveCount
from sim.workload.requests import Ints

#: No request is longer than this; keeps every sum of tokens within 64 bits.
MAX_TOKENS = 10_000_000

Tokens = Annotated[PositiveCount, Field(le=MAX_TOKENS)]
MeanTokens = Annotated[float, Field(gt=0, le=MAX_TOKENS)]

#: Evenly spread uniforms, for means over a distribution.
MIDPOINTS = (np.arange(4096) + 0.5) / 4096


class LengthDistribution(Spec):
    """Lengths in whole tokens, at least 1, one per uniform: the same uniform always gives the same length."""

    kind: str

    #: Whether lengths come from the rows of `workload.trace`.
    needs_trace: ClassVar[bool] = False

    def draw(self, uniforms: Floats, observed: Ints | None = None) -> Ints:
        """One length per row.

        Args:
            uniforms: (N,) in [0, 1).
            observed: (N,) length in the trace row that belongs to each row; None without a trace.

        Returns:
            (N,) tokens, 1..MAX_TOKENS.
        """
        raise NotImplementedError

    def mean_tokens(self, observed: Ints | None = None) -> float:
        """Mean of what `draw` gives, limits included; `observed` is the whole trace window."""
        return float(self.draw(MIDPOINTS, observed).mean())

    def max_tokens(self, observed: Ints | None = None) -> int:
        """The longest that `draw` can give."""
        return int(self.draw(np.array([1.0 - 2.0**-53]), observed)[0])


LENGTHS: Family[LengthDistribution] = Family("lengths", "sim.workload.lengths")


def whole_tokens(lengths: Floats, least: int, most: int) -> Ints:
    """Rounded to the nearest token and clipped."""
    return np.clip(np.rint(lengths), least, most).astype(np.int64)


def check_limits(least: int, most: int) -> None:
    """Raise ValueError unless min <= max."""
    if least > most:
        raise ValueError(f"min ({least}) is above max ({most})")
