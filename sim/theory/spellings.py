"""One acceptance, every spelling: rate, alpha, mean length with and without the bonus token, rates by position.

What tools call "acceptance" differs by more than any model error: vLLM's log line has accepted over drafted tokens, a
mean length with the bonus token and unconditional rates by position; papers have alpha; TensorRT-LLM forces a count
without the bonus token, SGLang simulates a length with it. All conversions are here, for specs, commands and tests.
"""

import itertools
import operator
from dataclasses import dataclass

import numpy as np

from sim.theory.tokens import Floats, alpha_from_tokens, expected_tokens


@dataclass(frozen=True, slots=True)
class Spellings:
    """Acceptance of steps that verify K drafts, K = `len(marginal)` >= 1.

    Attributes:
        marginal: s_i = P(a step accepts at least i drafts), vLLM's per-position acceptance rates; never increasing.
    """

    marginal: tuple[float, ...]

    def __post_init__(self) -> None:
        rates = (1.0, *self.marginal)
        if not self.marginal or not all(0.0 <= after <= before for before, after in itertools.pairwise(rates)):
            raise ValueError(f"unconditional rates must lie in [0, 1] and never increase, found {self.marginal}")

    @property
    def num_draft_tokens(self) -> int:
        """K."""
        return len(self.marginal)

    @property
    def accepted_per_step(self) -> float:
        """Mean drafts accepted by a step, without the bonus token (TensorRT-LLM's forced count)."""
        return float(sum(self.marginal))

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens emitted by a step, with the bonus token (vLLM's mean acceptance length, SGLang's length)."""
        return 1.0 + self.accepted_per_step

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens, what servers call (draft) acceptance rate. Not alpha."""
        return self.accepted_per_step / self.num_draft_tokens

    @property
    def alpha(self) -> float:
        """The one rate per draft that gives the same tokens per step at this K."""
        return alpha_from_tokens(min(self.tokens_per_step, self.num_draft_tokens + 1.0), self.num_draft_tokens)

    @property
    def conditional(self) -> tuple[float, ...]:
        """P(draft i accepted | drafts before it were); 0 where nothing survives."""
        pairs = itertools.pairwise((1.0, *self.marginal))
        return tuple(after / before if before > 0 else 0.0 for before, after in pairs)


def from_survival(survival: Floats) -> Spellings:
    """From exact unconditional rates (K,), rounding errors taken off."""
    return Spellings(tuple(np.minimum.accumulate(np.clip(survival, 0.0, 1.0)).tolist()))


def from_conditional(rates: tuple[float, ...]) -> Spellings:
    """From conditional rates by depth.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    if not all(0.0 <= rate <= 1.0 for rate in rates):
        raise ValueError(f"conditional rates must lie in [0, 1], found {rates}")
    return Spellings(tuple(itertools.accumulate(rates, operator.mul)))


def from_alpha(alpha: float, num_draft_tokens: int) -> Spellings:
    """From one rate per draft.

    Raises:
        ValueError: alpha outside [0, 1] or K < 1.
    """
    expected_tokens(alpha, num_draft_tokens)
    return from_conditional((alpha,) * num_draft_tokens)


def from_tokens_per_step(tokens: float, num_draft_tokens: int) -> Spellings:
    """From a mean length *with* the bonus token; the shape between positions is assumed geometric.

    Raises:
        ValueError: outside [1, K+1], or K < 1.
    """
    return from_alpha(alpha_from_tokens(tokens, num_draft_tokens), num_draft_tokens)


def from_accepted_per_step(accepted: float, num_draft_tokens: int) -> Spellings:
    """From a mean count *without* the bonus token; the shape between positions is assumed geometric.

    Raises:
        ValueError: outside [0, K], or K < 1.
    """
    return from_tokens_per_step(1.0 + accepted, num_draft_tokens)
