"""Speed-up at batch 1 for a given draft cost: per K, at the best K, and the draft cost that erases it."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.theory.tokens import acceptance_rate, best_k, expected_tokens, improvement


@dataclass(frozen=True, slots=True)
class SpeedupRow:
    """One K.

    Attributes:
        num_draft_tokens: K.
        tokens_per_step: with the bonus token.
        speedup: omega / (K c + 1).
        pays_below: c at which the gain is gone, (omega - 1) / K: accepted over drafted tokens. None for K = 0.
    """

    num_draft_tokens: int
    tokens_per_step: float
    speedup: float
    pays_below: float | None


@dataclass(frozen=True, slots=True)
class SpeedupTable:
    """All K for one alpha and draft cost.

    Attributes:
        alpha: acceptance per draft.
        draft_cost: c, time of a draft pass over time of a target pass.
        rows: by K.
        best_k: the K with the largest speed-up, 0 when none pays: turn speculation off.
        best_speedup: there.
        pays_up_to_k: the largest K that still pays; 0 when none does.
    """

    alpha: float
    draft_cost: float
    rows: tuple[SpeedupRow, ...]
    best_k: int
    best_speedup: float
    pays_up_to_k: int


def speedup_table(alpha: float, draft_cost: float, ks: Sequence[int], max_draft_tokens: int = 64) -> SpeedupTable:
    """Tabulate some K and search all up to `max_draft_tokens` for the best."""
    k, gain = best_k(alpha, draft_cost, max_draft_tokens)
    paying = [n for n in range(1, max_draft_tokens + 1) if improvement(alpha, n, draft_cost) > 1.0]
    rows = tuple(
        SpeedupRow(n, expected_tokens(alpha, n), improvement(alpha, n, draft_cost), _pays_below(alpha, n)) for n in ks
    )
    return SpeedupTable(alpha, draft_cost, rows, k, gain, max(paying, default=0))


def _pays_below(alpha: float, num_draft_tokens: int) -> float | None:
    return acceptance_rate(alpha, num_draft_tokens) if num_draft_tokens else None
