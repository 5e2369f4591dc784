"""`ngram_markov`: prompt lookup without token streams. Hits are clustered; nothing is drafted on a miss.

Every output position is a hit (x = 1: a match exists and its first token is right) or not: a Markov chain along the
output whose two probabilities vary per request. Draft 1 of a step at p is accepted iff x(p) = 1; a deeper draft on a
hit is accepted, on another position with the rate `rescue`. Rough: recorded sequences are better where there are any.
"""

import math
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.depth import DEPTH_STREAM
from sim.acceptance.positions import Bools, Positions, leading_accepts
from sim.acceptance.profiles import load_profile
from sim.acceptance.spread import REQUEST_STREAM, normal_effect, quantile_nodes
from sim.acceptance.two_state import TwoStates, first_state_path, stationary_first, two_state_survival
from sim.distributions import beta_quantile
from sim.spec import Seq, Spec
from sim.units import Probability
from sim.workload.requests import RequestTable

_normal_cdf = np.frompyfunc(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)), 1, 1)


class BetaShape(Spec):
    """A Beta distribution over requests."""

    a: float = Field(gt=0)
    b: float = Field(gt=0)


class NgramParameters(Spec):
    """Parameters of the hit chain; rates count drafts only, never the bonus token."""

    enter: BetaShape = Field(description="P(hit | position before was none), Beta over requests")
    stay: BetaShape = Field(description="P(hit | position before was a hit), Beta over requests")
    copula_rho: float = Field(ge=-1, le=1, description="Gaussian copula correlation of the two within a request")
    rescue: Seq[Probability] = Field(
        max_length=MAX_DRAFT_TOKENS - 1,
        description="for draft 2, 3, ...: P(accepted | drafts before it accepted) on a position that is no hit",
    )
    rejected_share: Probability = Field(
        description="share of zero-accept steps in which drafts were proposed and all rejected; 0 drafts in the rest"
    )

    def chain(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """(stay, enter) of requests from two independent uniforms each."""
        z_enter = normal_effect(first, 1.0)
        z_stay = self.copula_rho * z_enter + math.sqrt(1.0 - self.copula_rho**2) * normal_effect(second, 1.0)
        coupled = np.minimum(np.asarray(_normal_cdf(z_stay), dtype=np.float64), 1.0 - 2.0**-53)
        return beta_quantile(coupled, self.stay.a, self.stay.b), beta_quantile(first, self.enter.a, self.enter.b)


@lru_cache(maxsize=64)
def _survival(parameters: NgramParameters, max_draft_tokens: int) -> Floats:
    nodes, weights = quantile_nodes(48)
    first, second = (grid.ravel() for grid in np.meshgrid(nodes, nodes, indexing="ij"))
    stay, enter = parameters.chain(first, second)
    on_miss = np.array((0.0, *parameters.rescue[: max_draft_tokens - 1]))
    accept = np.stack((np.ones_like(on_miss), on_miss), axis=-1)
    accept = np.broadcast_to(accept, (len(first), *accept.shape))
    return two_state_survival(TwoStates(stay, enter, accept, np.outer(weights, weights).ravel()))


@ACCEPTANCE.register
class NgramMarkov(AcceptanceModel):
    """Clustered hits of prompt lookup: a shipped profile or explicit parameters.

    Steps without a match draft nothing and verify nothing beyond the one token of plain decoding. Tokens per step count
    those steps too and include the bonus token; rates never count it.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "ngram_markov", "profile": "sharegpt"}]})

    kind: Literal["ngram_markov"] = "ngram_markov"
    profile: str | None = Field(default=None, description="shipped profile: gsm8k (maths) or sharegpt (chat)")
    parameters: NgramParameters | None = Field(default=None, description="instead of a profile")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.profile is None) == (self.parameters is None):
            raise ValueError("state either a profile or parameters")
        self.resolved()
        return self

    def resolved(self) -> NgramParameters:
        """The parameters in force."""
        if self.parameters is not None:
            return self.parameters
        return NgramParameters.model_validate(load_profile("ngram", str(self.profile))["parameters"])

    def origin(self) -> str:
        """The shipped profile."""
        return self.profile or ""

    def max_supported_draft_tokens(self) -> int:
        """One more than the rescue table holds."""
        return len(self.resolved().rescue) + 1

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact over long outputs of equal length, by quadrature; all steps count, also those without a draft."""
        self.check_draft_tokens(max_draft_tokens)
        return _survival(self.resolved(), max_draft_tokens).copy()

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape with what is proposed: everything on a hit, mostly nothing elsewhere."""
        self.check_draft_tokens(max_draft_tokens)
        law, positions = self.resolved(), Positions(requests, max_draft_tokens)
        hit = self._hits(law, positions, streams)
        draws = positions.uniforms(streams, DEPTH_STREAM)

        def accepted_at(depth: int) -> Bools:
            return hit if depth == 1 else hit | (draws < law.rescue[depth - 2])

        accepted = positions.trim(leading_accepts(accepted_at, max_draft_tokens))
        rejected = positions.trim(positions.uniforms(streams, "acceptance/rejected") < law.rejected_share)
        proposed = np.where((accepted > 0) | rejected, np.uint8(max_draft_tokens), np.uint8(0))
        return Tape(accepted, proposed)

    def _hits(self, law: NgramParameters, positions: Positions, streams: Streams) -> Bools:
        rows = len(positions.requests)
        stay, enter = law.chain(streams.per_row(REQUEST_STREAM, rows), streams.per_row(f"{REQUEST_STREAM}/stay", rows))
        initial = stationary_first(stay, enter)
        draws = positions.uniforms(streams, "acceptance/state")
        return first_state_path(draws, positions.starts, positions.per_row(stay), positions.per_row(enter), initial)
