"""Explicit distributions of a target and a drafter along a chain of drafts, and what a rule makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Enumerations are refused beyond this many blocks of K + 1 tokens.
MAX_BLOCKS = 4_000_000


@dataclass(frozen=True, eq=False)
class Chain:
    """Next-token distributions of both models after every prefix of drafts.

    Attributes:
        target: K + 1 arrays; entry i has shape (V,) * (i + 1): p(. | prefix of i tokens), the last for the bonus token.
        draft: K arrays of the same kind: q(. | prefix of i tokens).
    """

    target: tuple[Floats, ...]
    draft: tuple[Floats, ...]

    def __post_init__(self) -> None:
        """Raise ValueError unless shapes fit and every row is a distribution."""
        if len(self.target) != len(self.draft) + 1 or not self.draft:
            raise ValueError(f"{len(self.draft)} drafts need {len(self.draft) + 1} target distributions and at least 1")
        size = self.vocabulary
        for rows in (self.target, self.draft):
            for depth, array in enumerate(rows):
                if array.shape != (size,) * (depth + 1):
                    raise ValueError(f"position {depth}: shape {array.shape}, expected {(size,) * (depth + 1)}")
                if bool((array < 0).any()) or not np.allclose(array.sum(axis=-1), 1.0, rtol=0, atol=1e-9):
                    raise ValueError(f"position {depth}: not a distribution")
        if size ** len(self.target) > MAX_BLOCKS:
            raise ValueError(f"{size} tokens at {len(self.target)} positions: more than {MAX_BLOCKS:,} blocks")

    @classmethod
    def repeated(cls, target: Sequence[float], draft: Sequence[float], num_draft_tokens: int) -> "Chain":
        """The same two distributions (V,) at every position, whatever came before.

        Raises:
            ValueError: lengths differ, not distributions, K < 1, or too many blocks to enumerate.
        """
        p, q = np.asarray(target, np.float64), np.asarray(draft, np.float64)
        if max(len(p), 1) ** (num_draft_tokens + 1) > MAX_BLOCKS:
            raise ValueError(f"{len(p)} tokens at {num_draft_tokens + 1} positions: more than {MAX_BLOCKS:,} blocks")
        shapes = [(len(p),) * depth for depth in range(num_draft_tokens + 1)]
        return cls(
            tuple(np.broadcast_to(p, (*shape, len(p))) for shape in shapes),
            tuple(np.broadcast_to(q, (*shape, len(q))) for shape in shapes[:-1]),
        )

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""
        return len(self.target[0])

    @property
    def num_draft_tokens(self) -> int:
        """K."""
        return len(self.draft)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one verification step does, exactly.

    Attributes:
        accepted: (K + 1,) P(the step accepts j drafts), bonus token not counted.
        output: (V,) * (K + 1): P(block of K + 1 tokens): those the step emits, and where it emits fewer, the tokens
            that the target writes after them. Equal to the target's own block iff the step changes nothing.
    """

    accepted: Floats
    output: Floats

    @property
    def acceptance(self) -> float:
        """P(the first draft is accepted)."""
        return float(self.accepted[1:].sum())

    @property
    def mean_accepted(self) -> float:
        """Mean accepted drafts, bonus token not counted."""
        return float(self.accepted @ np.arange(len(self.accepted)))

    @property
    def first_token(self) -> Floats:
        """(V,) distribution of the first emitted token."""
        first: Floats = self.output.reshape(len(self.output), -1).sum(axis=1)
        return first


def block_of(conditionals: Sequence[Floats]) -> Floats:
    """Joint distribution of a block from its conditionals, shape (V,) * len(conditionals)."""
    joint: Floats = np.ones(())
    for rows in conditionals:
        joint = joint[..., None] * rows
    return joint


def continued(mass: Floats, conditionals: Sequence[Floats]) -> Floats:
    """Mass over prefixes extended to whole blocks by the conditionals of the positions after them."""
    for rows in conditionals:
        mass = mass[..., None] * rows
    return mass


def total_variation(one: Floats, other: Floats) -> float:
    """Half the sum of absolute differences of two distributions."""
    return float(0.5 * np.abs(one - other).sum())


def argmax_one_hot(rows: Floats) -> Floats:
    """All mass on the most probable token of each row, the first of several."""
    return np.where(np.arange(rows.shape[-1]) == rows.argmax(axis=-1)[..., None], 1.0, 0.0)


def normalised(mass: Floats, otherwise: Floats) -> Floats:
    """Rows divided by their sum; the rows of `otherwise` where there is nothing to divide."""
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0, np.divide(mass, total, out=np.zeros_like(mass), where=total > 0), otherwise)


def pick(rows: Floats, uniforms: Floats) -> Ints:
    """Tokens (N,) drawn from rows (N, V) by inverse CDF; a token without mass is never drawn."""
    cumulative = np.cumsum(rows, axis=1)
    below = cumulative <= (uniforms * cumulative[:, -1])[:, None]
    last: Ints = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
    chosen: Ints = np.minimum(below.sum(axis=1), last)
    return chosen
