"""`regime`: easy and hard stretches of text, and requests that differ. Recommended where tails matter.

Per request an effect u ~ N(0, request_sd). Every output position is easy or hard (a Markov chain); there a *first*
draft would be accepted (x = 1) with probability logistic(state logit + u). Draft 1 of a step at p is accepted iff
x(p) = 1; draft d >= 2 sits on position p+d-1 and is accepted with logistic(logit keep_d + c u) if x = 1 there, with
logistic(logit rescue_d + c u) if not. The first rejection ends the step.
"""

from functools import lru_cache
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.depth import DEPTH_STREAM
from sim.acceptance.positions import Bools, Positions, leading_accepts
from sim.acceptance.profiles import load_profile
from sim.acceptance.spread import REQUEST_STREAM, logistic, logit, normal_effect, quantile_nodes
from sim.acceptance.two_state import TwoStates, first_state_path, stationary_first, two_state_survival
from sim.spec import Seq, Spec
from sim.theory import bisect, tokens_from_survival
from sim.units import Probability
from sim.workload.requests import RequestTable

_MAX_SHIFT = 40.0

#: How much of a level shift acts on drafts 2, 3, ...: domains and drafters differ most in the first draft. Of 0, 0.25,
#: 0.5 and 0.83, 0 and 0.25 err least between the two shipped profiles and on published curves of length by K; picked on
#: these, so their errors are not held out.
LEVEL_COUPLING = 0.25


class RegimeParameters(Spec):
    """Parameters of the two-regime law; rates count drafts only, never the bonus token."""

    easy_logit: float = Field(description="logit of P(a first draft is accepted) at an easy position")
    hard_logit: float = Field(description="the same at a hard position")
    stay_easy: Probability = Field(description="P(next position easy | this one easy)")
    stay_hard: Probability = Field(description="P(next position hard | this one hard)")
    request_sd: float = Field(ge=0, le=20, description="standard deviation of the request effect u, in logits")
    depth_coupling: float = Field(default=0.5, description="c: how much of u acts on drafts 2, 3, ...")
    keep: Seq[Probability] = Field(
        max_length=MAX_DRAFT_TOKENS - 1,
        description="for draft 2, 3, ...: P(accepted | drafts before it were, a first draft would be accepted there)",
    )
    rescue: Seq[Probability] = Field(
        max_length=MAX_DRAFT_TOKENS - 1,
        description="for draft 2, 3, ...: P(accepted | drafts before it accepted, a first draft would fail there)",
    )

    @model_validator(mode="after")
    def _same_depths(self) -> Self:
        if len(self.keep) != len(self.rescue):
            raise ValueError(f"keep has {len(self.keep)} depths and rescue {len(self.rescue)}; they must agree")
        return self

    def state_logits(self, shift: float) -> Floats:
        """(2,) logits of a first draft at easy and at hard positions, moved by `shift`."""
        return np.array([self.easy_logit, self.hard_logit]) + shift

    def depth_logits(self, shift: float) -> Floats:
        """(D, 2) logits of drafts 2, 3, ... where a first draft would be accepted (column 0) or not (column 1)."""
        rates = np.array([self.keep, self.rescue], dtype=np.float64).T.reshape(-1, 2)
        return logit(rates) + LEVEL_COUPLING * shift


TemperatureFactor = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        description="tokens per step at the temperature of the run over those stated, if measured at another. "
        "Published from T=0 to T=1: 0.89 to 0.97 for chains of good heads, 0.88 for a weak one; never assumed",
    ),
]


class Level(Spec):
    """A measured mean to which a profile is moved."""

    tokens_per_step: float = Field(
        ge=1, description="tokens emitted per verification step, *including* the bonus token"
    )
    num_speculative_tokens: int = Field(ge=1, le=MAX_DRAFT_TOKENS, description="the K at which that was measured")
    temperature_factor: TemperatureFactor = 1.0

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        check_mean(self.tokens_per_step, self.num_speculative_tokens)
        return self

    @property
    def mean(self) -> float:
        """Tokens per step at the temperature of the run."""
        return at_temperature(self.tokens_per_step, self.temperature_factor)


def at_temperature(tokens_per_step: float, factor: float) -> float:
    """A mean taken at another temperature, scaled; never below the one token that every step emits."""
    return max(tokens_per_step * factor, 1.0)


def check_mean(tokens_per_step: float, num_draft_tokens: int) -> None:
    """ValueError when a step of K drafts cannot emit that many tokens on average."""
    if tokens_per_step > num_draft_tokens + 1:
        raise ValueError(
            f"tokens_per_step {tokens_per_step:g} is more than num_speculative_tokens + 1 = {num_draft_tokens + 1}: "
            "it counts the bonus token once and nothing else"
        )


def regime_law(parameters: RegimeParameters, shift: float, max_draft_tokens: int, num_nodes: int = 128) -> TwoStates:
    """`parameters` moved by `shift` as a two-state law, the request effect on `num_nodes` quadrature nodes."""
    nodes, weights = quantile_nodes(num_nodes)
    effect = normal_effect(nodes, parameters.request_sd)[:, None]
    first = logistic(parameters.state_logits(shift) + effect)
    deeper = logistic(parameters.depth_logits(shift)[None] + parameters.depth_coupling * effect[:, :, None])
    kept, rescued = deeper[:, : max_draft_tokens - 1, 0, None], deeper[:, : max_draft_tokens - 1, 1, None]
    accept = np.concatenate((first[:, None, :], first[:, None, :] * kept + (1 - first[:, None, :]) * rescued), axis=1)
    stay, enter = np.full(len(nodes), parameters.stay_easy), np.full(len(nodes), 1.0 - parameters.stay_hard)
    return TwoStates(stay, enter, accept, weights)


@lru_cache(maxsize=256)
def _survival(parameters: RegimeParameters, shift: float, max_draft_tokens: int) -> Floats:
    """Exact survivals per step of `parameters` moved by `shift`."""
    survival = two_state_survival(regime_law(parameters, shift, max_draft_tokens))
    survival.flags.writeable = False
    return survival


@lru_cache(maxsize=256)
def _shift_to(parameters: RegimeParameters, level: Level) -> float:
    """The shift of all logits that gives `level`; ValueError when none does."""

    def excess(shift: float) -> float:
        return tokens_from_survival(_survival(parameters, shift, level.num_speculative_tokens)) - level.mean

    if level.num_speculative_tokens > len(parameters.keep) + 1:
        raise ValueError(
            f"the profile covers {len(parameters.keep) + 1} draft tokens per step, the level asks for more"
        )
    shift = bisect(excess, -_MAX_SHIFT, _MAX_SHIFT, steps=60)
    if abs(excess(shift)) > 1e-6:
        raise ValueError(f"no shift of this profile gives {level.mean:g} tokens per step")
    return shift


@ACCEPTANCE.register
class Regime(AcceptanceModel):
    """Two regimes of text with a request effect: a shipped profile, or explicit parameters, optionally moved.

    `level` moves the mean to a measured one (another model, domain or temperature): s is added to both state logits,
    a quarter of s to the depth logits. The mean transfers, the spread does not: set `request_sd` too where known.
    Tokens per step always include the bonus token; rates never count it.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "regime", "profile": "sharegpt"},
                {
                    "kind": "regime",
                    "profile": "gsm8k",
                    "level": {"tokens_per_step": 2.3, "num_speculative_tokens": 3},
                    "request_sd": 0.4,
                },
            ]
        }
    )

    kind: Literal["regime"] = "regime"
    profile: str | None = Field(
        default=None, description="shipped profile: gsm8k (maths) or sharegpt (chat), both EAGLE"
    )
    parameters: RegimeParameters | None = Field(
        default=None, description="instead of a profile, as `specsim fit-acceptance` prints them"
    )
    level: Level | None = Field(default=None, description="move the profile to these tokens per step (bonus included)")
    request_sd: float | None = Field(
        default=None, ge=0, le=20, description="replaces the profile's request_sd (logits)"
    )

    @model_validator(mode="after")
    def _solvable(self) -> Self:
        if (self.profile is None) == (self.parameters is None):
            raise ValueError("state either a profile or parameters")
        self.resolved()
        self.shift()
        return self

    def resolved(self) -> RegimeParameters:
        """The parameters in force, before the level shift."""
        base = self.parameters
        if base is None:
            base = RegimeParameters.model_validate(load_profile("regime", str(self.profile))["parameters"])
        return base if self.request_sd is None else base.model_copy(update={"request_sd": self.request_sd})

    def shift(self) -> float:
        """s, the shift of the logits that brings the profile to `level`; 0 without one."""
        return 0.0 if self.level is None else _shift_to(self.resolved(), self.level)

    def origin(self) -> str:
        """The shipped profile."""
        return self.profile or ""

    def max_supported_draft_tokens(self) -> int:
        """One more than the depth tables hold."""
        return len(self.resolved().keep) + 1

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact over long outputs of equal length, by quadrature over the request effect."""
        self.check_draft_tokens(max_draft_tokens)
        return _survival(self.resolved(), self.shift(), max_draft_tokens).copy()

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape; states and x belong to positions, so every K meets the same easy and hard text."""
        self.check_draft_tokens(max_draft_tokens)
        law, shift, positions = self.resolved(), self.shift(), Positions(requests, max_draft_tokens)
        effect = normal_effect(streams.per_row(REQUEST_STREAM, len(requests)), law.request_sd)
        easy = self._easy(law, positions, streams)
        first = law.state_logits(shift)[1 - easy.view(np.uint8)]
        would_accept = _needed(positions, streams, "acceptance/first", effect) < first
        row = (~would_accept).view(np.uint8)
        depth_logits = law.depth_logits(shift)
        needed = _needed(positions, streams, DEPTH_STREAM, law.depth_coupling * effect)

        def accepted_at(depth: int) -> Bools:
            return would_accept if depth == 1 else needed < depth_logits[depth - 2][row]

        return Tape(positions.trim(leading_accepts(accepted_at, max_draft_tokens)))

    def _easy(self, law: RegimeParameters, positions: Positions, streams: Streams) -> Bools:
        stay, enter = np.array(law.stay_easy), np.array(1.0 - law.stay_hard)
        draws = positions.uniforms(streams, "acceptance/state")
        return first_state_path(draws, positions.starts, stay, enter, stationary_first(stay, enter))


def _needed(positions: Positions, streams: Streams, name: str, effect: Floats) -> Floats:
    """(T,) logit below which a draft there is rejected: U < logistic(l + u) is logit(U) - u < l."""
    needed = logit(positions.uniforms(streams, name))
    needed -= positions.per_row(effect)
    return needed
