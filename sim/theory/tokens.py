"""Expected tokens per verification step, and what follows from them. Used by acceptance models, reports and tests.

Notation of Leviathan et al. (arXiv 2211.17192): alpha is the probability that a draft token is accepted given that all
drafts before it were, K the drafts per step, omega the tokens emitted per step *including* the bonus token, c the time
of a draft pass over the time of a target pass. Survivals s_i are unconditional: P(at least i drafts accepted).
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


def expected_tokens(alpha: Number, num_draft_tokens: int) -> Number:
    """Omega = 1 + alpha + ... + alpha^K: tokens per step with the bonus token (Leviathan et al., Eq. 1).

    Evaluated as the sum (Horner): the closed ratio loses precision as alpha tends to 1.

    Args:
        alpha: acceptance per draft, in [0, 1]; a float or an array.
        num_draft_tokens: K >= 0.

    Raises:
        ValueError: alpha outside [0, 1] or K negative.
    """
    if num_draft_tokens < 0 or not np.all((np.asarray(alpha) >= 0) & (np.asarray(alpha) <= 1)):
        raise ValueError(f"need 0 <= alpha <= 1 and K >= 0, found alpha={alpha!r}, K={num_draft_tokens!r}")
    total = alpha * 0.0 + 1.0
    for _ in range(num_draft_tokens):
        total = 1.0 + alpha * total
    return total


def tokens_from_survival(survival: Sequence[float] | Floats) -> float:
    """Tokens per step from unconditional rates: 1 + sum of s_i, bonus token included."""
    return 1.0 + float(np.sum(np.asarray(survival, dtype=np.float64)))


def emitted_distribution(alpha: float, num_draft_tokens: int) -> Floats:
    """P(a step emits j tokens) at index j - 1, j = 1..K+1: alpha^(j-1) (1 - alpha), and alpha^K for j = K+1."""
    probabilities: Floats = np.power(alpha, np.arange(num_draft_tokens + 1.0)) * (1.0 - alpha)
    probabilities[-1] = alpha**num_draft_tokens
    return probabilities


def variance_of_tokens(alpha: float, num_draft_tokens: int) -> float:
    """Variance of the tokens emitted by one step."""
    counts = np.arange(1, num_draft_tokens + 2)
    mean = expected_tokens(alpha, num_draft_tokens)
    return float(emitted_distribution(alpha, num_draft_tokens) @ (counts - mean) ** 2)


def acceptance_rate(alpha: float, num_draft_tokens: int) -> float:
    """Accepted over drafted tokens, (omega - 1) / K: what servers report as "acceptance rate". Not alpha."""
    return (expected_tokens(alpha, num_draft_tokens) - 1.0) / num_draft_tokens


def alpha_from_acceptance_rate(rate: float, num_draft_tokens: int) -> float:
    """The alpha whose accepted-over-drafted rate is `rate`; inverse of `acceptance_rate`.

    Raises:
        ValueError: `rate` outside [0, 1].
    """
    return alpha_from_tokens(1.0 + rate * num_draft_tokens, num_draft_tokens)


def alpha_from_tokens(tokens_per_step: float, num_draft_tokens: int) -> float:
    """The alpha with `expected_tokens(alpha, K)` = `tokens_per_step` (bonus token included), by bisection.

    Raises:
        ValueError: K < 1, or `tokens_per_step` outside [1, K+1].
    """
    if num_draft_tokens < 1 or not 1.0 <= tokens_per_step <= num_draft_tokens + 1.0:
        raise ValueError(f"tokens per step must lie in [1, K+1], found {tokens_per_step!r} at K={num_draft_tokens}")
    if tokens_per_step == num_draft_tokens + 1.0:
        return 1.0
    return bisect(lambda alpha: expected_tokens(alpha, num_draft_tokens) - tokens_per_step, 0.0, 1.0)


def bisect(function: Callable[[float], float], low: float, high: float, steps: int = 100) -> float:
    """Root of a non-decreasing function between `low` and `high`; an end when it does not change sign there."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if function(middle) >= 0 else (middle, high)
    return 0.5 * (low + high)


def beta_expected_tokens(a: float, b: float, num_draft_tokens: int) -> float:
    """Mean omega of a *fresh* request whose alpha ~ Beta(a, b): 1 + sum of E[alpha^i].

    Not the tokens per step of a server: there, requests with a low alpha take more steps (harmonic mean).
    """
    moments = itertools.accumulate(((a + j) / (a + b + j) for j in range(num_draft_tokens)), operator.mul)
    return tokens_from_survival(tuple(moments))


def improvement(alpha: float, num_draft_tokens: int, draft_cost: float) -> float:
    """Wall-time gain omega / (K c + 1) at batch 1, memory-bound (Leviathan et al., Theorem 3.8).

    Args:
        alpha: acceptance per draft.
        num_draft_tokens: K.
        draft_cost: c, time of a draft pass over time of a target pass.
    """
    return expected_tokens(alpha, num_draft_tokens) / (num_draft_tokens * draft_cost + 1.0)


def best_k(alpha: float, draft_cost: float, max_draft_tokens: int = 40) -> tuple[int, float]:
    """The K in 0..`max_draft_tokens` with the largest `improvement`, and that gain; the smaller K on a tie."""
    gains = [improvement(alpha, k, draft_cost) for k in range(max_draft_tokens + 1)]
    k = int(np.argmax(gains))
    return k, gains[k]


def operations_growth(alpha: float, num_draft_tokens: int, draft_operations: float) -> float:
    """Operations per emitted token over those of plain decoding, (K c' + K + 1) / omega (Theorem 3.11 there).

    Args:
        alpha: acceptance per draft.
        num_draft_tokens: K.
        draft_operations: c', operations of a draft token over those of a target token.
    """
    work = num_draft_tokens * draft_operations + num_draft_tokens + 1.0
    return work / expected_tokens(alpha, num_draft_tokens)


def lock_step_accepted(alpha: float, num_draft_tokens: int, batch: int) -> float:
    """E[min accepted] = sum of alpha^(i B) when a batch of B advances in lock step (not how vLLM works: ragged)."""
    return expected_tokens(alpha**batch, num_draft_tokens) - 1.0


def distinct_experts(num_tokens: float, num_experts: int, experts_per_token: int, correlation: float = 0.0) -> float:
    """Experts whose weights a pass reads: E (1 - (1 - k/E)^t) under uniform independent routing (arXiv 2505.19645).

    Args:
        num_tokens: t, tokens in the pass.
        num_experts: E, routed experts of a layer.
        experts_per_token: k.
        correlation: rho in [0, 1]; neighbouring tokens route alike, t becomes 1 + (t - 1)(1 - rho).
    """
    effective = 1.0 + (num_tokens - 1.0) * (1.0 - correlation) if num_tokens > 0 else 0.0
    return float(num_experts * (1.0 - (1.0 - experts_per_token / num_experts) ** effective))
