"""`length`: only a mean is known. The same mean gives very different tails, so the shape is named."""

from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.depth import DepthRates
from sim.acceptance.iid import Iid
from sim.acceptance.per_position import PerPosition
from sim.acceptance.regime import Level, Regime, TemperatureFactor, at_temperature, check_mean
from sim.acceptance.spread import RequestSpread
from sim.errors import ScenarioError
from sim.theory import alpha_from_tokens, bisect
from sim.theory.draft_trees import TreeShape
from sim.workload.requests import RequestTable


@ACCEPTANCE.register
class Length(AcceptanceModel):
    """A mean of tokens per step, *including* the bonus token, in [1, K+1], and the shape of the distribution around it.

    `geometric`: one rate alpha solved from the mean; any K. `min_variance`: every step accepts the whole part of the
    mean and a fraction of them one more (vLLM's `synthetic_acceptance_length`); up to the K of the measurement.
    `regime`: a shipped profile moved to the mean. Beware of figures that leave the bonus token out: add 1.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "length", "tokens_per_step": 2.6, "num_speculative_tokens": 7},
                {"kind": "length", "tokens_per_step": 2.6, "num_speculative_tokens": 7, "shape": "min_variance"},
                {
                    "kind": "length",
                    "tokens_per_step": 2.3,
                    "num_speculative_tokens": 3,
                    "shape": "regime",
                    "profile": "sharegpt",
                },
            ]
        }
    )

    counts_accepted: ClassVar[bool] = True

    kind: Literal["length"] = "length"
    tokens_per_step: float = Field(ge=1, description="mean tokens emitted per verification step, bonus token included")
    num_speculative_tokens: int = Field(
        ge=1, le=MAX_DRAFT_TOKENS, description="the K at which the mean was measured; for a token tree its depth"
    )
    shape: Literal["geometric", "min_variance", "regime"] = "geometric"
    profile: str | None = Field(default=None, description="the profile of shape `regime`; refused with other shapes")
    temperature_factor: TemperatureFactor = 1.0
    request_spread: RequestSpread | None = Field(
        default=None,
        description="How the rate varies over requests, the mean kept; shape `geometric` only",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.shape == "regime") != (self.profile is not None):
            raise ValueError("shape `regime` needs a profile, and only that shape takes one")
        if self.shape != "geometric" and self.request_spread is not None:
            raise ValueError(f"shape `{self.shape}` takes no request_spread (kind `regime` takes a request_sd)")
        check_mean(self.tokens_per_step, self.num_speculative_tokens)
        try:
            self.model()
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
        return self

    def model(self) -> DepthRates | Regime:
        """The kind that draws the tape."""
        tokens, k = at_temperature(self.tokens_per_step, self.temperature_factor), self.num_speculative_tokens
        if self.shape == "geometric":
            return self._geometric(tokens, k)
        if self.shape == "min_variance":
            return PerPosition(rates=minimum_variance_rates(tokens, k))
        return Regime(profile=self.profile, level=Level(tokens_per_step=tokens, num_speculative_tokens=k))

    def check_tree(self, shape: TreeShape, num_draft_tokens: int) -> None:
        """As every kind; and the mean must have been measured at this depth."""
        super().check_tree(shape, num_draft_tokens)
        if self.num_speculative_tokens != shape.depth:
            raise ScenarioError(
                f"acceptance `length` was measured with {self.num_speculative_tokens} drafts at most per step, but "
                f"this tree is {shape.depth} deep; for a tree num_speculative_tokens is its depth"
            )

    def _geometric(self, tokens: float, k: int) -> Iid:
        if self.request_spread is None:
            return Iid(rate=alpha_from_tokens(tokens, k))

        def spread(alpha: float) -> Iid:
            return Iid(rate=alpha, request_spread=self.request_spread)

        return spread(bisect(lambda alpha: float(spread(alpha).survival(k).sum()) - tokens + 1.0, 0.0, 1.0, steps=40))

    def origin(self) -> str:
        """The shape, and its profile."""
        return " ".join(part for part in (self.shape, self.profile) if part)

    def max_supported_draft_tokens(self) -> int | None:
        """No limit for `geometric`, the measured K for `min_variance`, the profile's tables for `regime`."""
        return self.model().max_supported_draft_tokens()

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact, from the shape."""
        self.check_draft_tokens(max_draft_tokens)
        return self.model().survival(max_draft_tokens)

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape of the shape."""
        self.check_draft_tokens(max_draft_tokens)
        return self.model().tape(requests, max_draft_tokens, streams)


def minimum_variance_rates(tokens_per_step: float, num_draft_tokens: int) -> tuple[float, ...]:
    """Unconditional rates with the mean and the least variance: floor(m-1) ones, the fraction, zeros (as vLLM)."""
    accepted = tokens_per_step - 1.0
    return tuple(min(max(accepted - depth, 0.0), 1.0) for depth in range(num_draft_tokens))
