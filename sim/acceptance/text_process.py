"""A text written token by token, and what it says about accepted drafts: shared by the sources of `distributions`.

Contexts are states of a Markov chain. In each the rule writes a token from `written`, and `kept` says how much that
token speaks for an accepted draft (`sim/verification/base.py`). So acceptance belongs to the text: easy and hard spots,
runs, and their dependence on K follow from p and q without further parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.acceptance.base import Counts, Floats, Ints, Streams
from sim.acceptance.positions import Positions, leading_accepts
from sim.verification.base import VerificationRule

#: One uniform per position writes the text, another judges the drafts that sit on (or start at) the position.
TEXT_STREAM, VERDICT_STREAM = "acceptance/text", "acceptance/verdict"
#: One per position moves on to the next context where the token does not.
MOVE_STREAM = "acceptance/move"
#: One uniform per request picks the context that its output starts from.
START_STREAM = "acceptance/start"

_ACCURACY, _MAX_ROUNDS = 1e-12, 20_000


#: (contexts, tokens, output positions) of some rows -> their next contexts.
Follow = Callable[[Ints, Ints, Ints], Ints]


@dataclass(frozen=True, eq=False)
class TextProcess:
    """What is written in each context, and where it leads.

    Attributes:
        written: (C, V) distribution of the next token.
        kept: (C, V) see `VerificationRule.kept`.
        start: (C,) distribution of the context that a request starts from.
    """

    written: Floats
    kept: Floats
    start: Floats

    @property
    def mixes(self) -> bool:
        """Whether every context is certain to come again, so that long outputs do not depend on their start."""
        raise NotImplementedError

    def advance(self, mass: Floats) -> Floats:
        """(C,) mass of the next contexts from the mass (C, V) of contexts and their tokens."""
        raise NotImplementedError

    def follow(self, positions: Positions, streams: Streams) -> Follow:
        """How contexts follow one another in a text that is drawn."""
        raise NotImplementedError

    def survival(self, max_draft_tokens: int) -> Floats:
        """P(a step accepts at least 1..K drafts) in long outputs of a rule that judges token by token.

        The contexts in which steps start form a chain; its stationary distribution by power iteration to 1e-12.
        """
        accepted, start = self.written * self.kept, self.start
        survival = np.zeros(max_draft_tokens)
        for _ in range(_MAX_ROUNDS):
            alive = [start]
            for _ in range(max_draft_tokens):
                alive.append(self.advance(alive[-1][:, None] * accepted))
            survival = np.array([mass.sum() for mass in alive[1:]])
            reached = np.sum(alive, axis=0)  # every context that is judged, or gets the bonus token
            following = self.advance(reached[:, None] * self.written) - (reached - start)
            change, start = float(np.abs(following - start).sum()), following
            if change < _ACCURACY:
                break
        return survival

    def accepted(self, positions: Positions, streams: Streams, rule: VerificationRule, max_draft_tokens: int) -> Counts:
        """Write a text for every row and judge it: drafts that a step starting at each position accepts, flat."""
        kept = self._write(positions, streams)
        draws = positions.uniforms(streams, VERDICT_STREAM)
        if rule.judges_blocks:
            return _accepted_blocks(kept, draws, max_draft_tokens)
        flags = draws < kept
        return leading_accepts(lambda depth: flags, max_draft_tokens)

    def _write(self, positions: Positions, streams: Streams) -> Floats:
        """`kept` of the token at every position, flat: all rows side by side, the long ones first."""
        uniforms, kept = positions.uniforms(streams, TEXT_STREAM), np.empty(int(positions.lengths.sum()))
        order = np.argsort(-positions.lengths, kind="stable")
        at, lengths = positions.starts[order], positions.lengths[order]
        zeros = np.zeros(len(order), np.int64)
        context = Picker(self.start[None, :])(zeros, streams.per_row(START_STREAM, len(order)))[order]
        pick_token, follow = Picker(self.written), self.follow(positions, streams)
        for step in range(int(lengths.max(initial=0))):
            rows = int(np.searchsorted(-lengths, -step, side="left"))
            here, context = at[:rows] + step, context[:rows]
            token = pick_token(context, uniforms[here])
            kept[here] = self.kept[context, token]
            context = follow(context, token, here)
        return kept


@dataclass(frozen=True, eq=False)
class TokenDriven(TextProcess):
    """The token decides what comes next: a language model.

    Attributes:
        next_context: (C, V) context after each token.
    """

    next_context: Ints

    @property
    def mixes(self) -> bool:
        """Whether every token can be written everywhere."""
        return bool((self.written > 0).all())

    def advance(self, mass: Floats) -> Floats:
        """Mass gathered by the contexts that tokens lead to."""
        return np.bincount(self.next_context.ravel(), mass.ravel(), minlength=len(mass)).astype(np.float64)

    def follow(self, positions: Positions, streams: Streams) -> Follow:
        """By the token alone."""
        return lambda context, token, here: self.next_context[context, token]


@dataclass(frozen=True, eq=False)
class ChanceDriven(TextProcess):
    """Contexts follow one another whatever is written: kinds of text, easy and hard.

    Attributes:
        move: (C, C) P(next context | context).
    """

    move: Floats

    @property
    def mixes(self) -> bool:
        """Always: a context is redrawn sooner or later."""
        return True

    def advance(self, mass: Floats) -> Floats:
        """One step of the chain."""
        moved: Floats = mass.sum(axis=1) @ self.move
        return moved

    def follow(self, positions: Positions, streams: Streams) -> Follow:
        """By one more uniform per position."""
        pick, uniforms = Picker(self.move), positions.uniforms(streams, MOVE_STREAM)
        return lambda context, token, here: pick(context, uniforms[here])


class Picker:
    """Draws from the rows of a table of distributions: one search in their cumulative sums, laid end to end."""

    def __init__(self, rows: Floats) -> None:
        cumulative = np.cumsum(rows, axis=1)
        self.width = rows.shape[1]
        self.ladder: Floats = (cumulative / cumulative[:, -1:] + np.arange(len(rows))[:, None]).ravel()

    def __call__(self, row: Ints, uniforms: Floats) -> Ints:
        """One entry of each row, by inverse CDF."""
        found = np.searchsorted(self.ladder, row + uniforms, side="right") - row * self.width
        chosen: Ints = np.clip(found, 0, self.width - 1)
        return chosen


def _accepted_blocks(kept: Floats, draws: Floats, max_draft_tokens: int) -> Counts:
    """As `Block.survival_along`, for steps that start at every position, against one uniform per start."""
    product, lowest = np.ones(len(kept)), np.ones(len(kept))
    counts = np.zeros(len(kept), np.uint8)
    for depth in range(1, max_draft_tokens + 1):
        reach = max(len(kept) - depth + 1, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            product[:reach] *= kept[depth - 1 :]
        product[reach:] = 0.0
        lowest = np.fmin(lowest, product)
        counts += draws < lowest
    return counts
