"""From two counters of a server log to alpha and tokens per step: the conversions between the usual figures."""

from dataclasses import dataclass

from sim.theory.spellings import from_accepted_per_step
from sim.theory.tokens import variance_of_tokens


@dataclass(frozen=True, slots=True)
class Worksheet:
    """Figures of one measurement; what the counters do not give is None.

    Attributes:
        drafted, accepted: draft tokens, bonus tokens not among them.
        num_drafts: verification steps with drafts.
        num_draft_tokens: K, drafts per step (mean, when it varied).
        acceptance_rate: accepted over drafted, as servers report it. Not alpha.
        accepted_per_step: mean accepted drafts, without the bonus token.
        tokens_per_step: with the bonus token: vLLM's mean acceptance length.
        alpha: the rate per draft that gives these tokens per step if drafts were i.i.d.; None for a K that varied.
        alpha_error: one standard error of alpha, were every step independent.
    """

    drafted: int
    accepted: int
    num_drafts: float
    num_draft_tokens: float
    acceptance_rate: float
    accepted_per_step: float
    tokens_per_step: float
    alpha: float | None
    alpha_error: float | None


def worksheet(
    drafted: int, accepted: int, *, num_drafts: int | None = None, num_draft_tokens: int | None = None
) -> Worksheet:
    """Fill in the sheet from the counters and either the number of steps or K.

    Args:
        drafted: `spec_decode_num_draft_tokens`.
        accepted: `spec_decode_num_accepted_tokens`.
        num_drafts: `spec_decode_num_drafts`, steps that verified drafts.
        num_draft_tokens: K, when every step drafted the same.

    Raises:
        ValueError: more accepted than drafted, neither or contradictory steps and K.
    """
    steps = _steps(drafted, accepted, num_drafts, num_draft_tokens)
    k, mean = drafted / steps, accepted / steps
    alpha = alpha_error = None
    if abs(k - round(k)) < 1e-9:
        alpha = from_accepted_per_step(mean, round(k)).alpha
        alpha_error = _alpha_error(alpha, round(k), steps)
    return Worksheet(drafted, accepted, steps, k, accepted / drafted, mean, 1.0 + mean, alpha, alpha_error)


def _steps(drafted: int, accepted: int, num_drafts: int | None, k: int | None) -> float:
    if drafted < 1 or not 0 <= accepted <= drafted:
        raise ValueError(f"need drafted >= 1 and 0 <= accepted <= drafted, found {drafted} and {accepted}")
    if num_drafts is None and k is None:
        raise ValueError("need the number of steps or K: the rate alone says nothing about tokens per step")
    if num_drafts is not None and k is not None and num_drafts * k != drafted:
        raise ValueError(f"{num_drafts} steps x K = {k} are {num_drafts * k} drafts, not {drafted}")
    steps = num_drafts if num_drafts is not None else drafted / (k or 1)
    if not 0 < steps <= drafted:
        raise ValueError(f"{drafted} drafts in {steps:g} steps: need between 1 step and one per draft")
    return steps


def _alpha_error(alpha: float, k: int, steps: float) -> float | None:
    """Standard error of the mean of tokens per step over the slope of omega."""
    if not 0.0 < alpha < 1.0:
        return None
    slope = sum(i * alpha ** (i - 1) for i in range(1, k + 1))
    return float((variance_of_tokens(alpha, k) / steps) ** 0.5 / slope)
