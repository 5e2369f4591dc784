"""`lognormal`: the usual one-humped, right-skewed length distribution."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.distributions import lognormal_parameters, lognormal_quantile
from sim.rng import Floats
from sim.workload.lengths.base import (
    LENGTHS,
    MAX_TOKENS,
    LengthDistribution,
    MeanTokens,
    Tokens,
    check_limits,
    whole_tokens,
)
from sim.workload.requests import Ints


@LENGTHS.register
class Lognormal(LengthDistribution):
    """Lognormal lengths, rounded to whole tokens and clipped to `min`..`max`.

    `mean` and `cv` are those of the distribution before clipping: limits that bite move the mean (`mean_tokens` says
    where to).
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "lognormal", "mean": 700, "cv": 1.0, "min": 16, "max": 8000}]}
    )

    kind: Literal["lognormal"] = "lognormal"
    mean: MeanTokens = Field(description="Mean in tokens, before clipping.")
    cv: Annotated[float, Field(ge=0, le=10, description="Standard deviation over mean, before clipping.")]
    min: Tokens = 1
    max: Tokens = MAX_TOKENS

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        check_limits(self.min, self.max)
        return self

    def draw(self, uniforms: Floats, observed: Ints | None = None) -> Ints:
        """By inverse CDF."""
        mu, sigma = lognormal_parameters(self.mean, self.cv)
        return whole_tokens(lognormal_quantile(uniforms, mu, sigma), self.min, self.max)
