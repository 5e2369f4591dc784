"""A verification rule: which drafts of a step the target keeps, and what it writes instead. Contract of this folder.

Every rule is a handful of functions on explicit distributions, vectorised over leading axes: p is the target's and q
the drafter's distribution, (..., V). From them follow, by enumeration, the exact law of a whole step (`outcome`), a
sampler (`sample`) and what a text tells about its accepted drafts (`kept`, `survival_along`). A rule is `lossless` when
the output is distributed as `reference`, the target's own.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from sim.spec import Family, Spec
from sim.verification.chain import Chain, Floats, Ints, Outcome, continued, normalised, pick


class Samples(NamedTuple):
    """Steps drawn at random.

    Attributes:
        tokens: (N, K + 1) emitted tokens, -1 after the last one of a step.
        accepted: (N,) accepted drafts.
    """

    tokens: Ints
    accepted: Ints


class VerificationRule(Spec):
    """What a scenario writes under `verification:` of an arm."""

    #: Whether the output is distributed exactly as the target's own.
    lossless: ClassVar[bool]
    #: Paper or engine file that defines the rule.
    source: ClassVar[str]
    #: Whether the rule looks at the drafter's probabilities, which look-up methods do not have.
    needs_draft_probabilities: ClassVar[bool] = False
    #: Whether a draft is judged together with those before it, so that one verdict covers the whole step.
    judges_blocks: ClassVar[bool] = False

    kind: str

    def reference(self, p: Floats) -> Floats:
        """What the target would write without speculation: p, or its argmax for rules of greedy decoding."""
        return p

    def drafted(self, q: Floats) -> Floats:
        """What drafts are drawn from: q, or its argmax for drafters that are greedy."""
        return q

    def bonus(self, p: Floats) -> Floats:
        """Distribution of the token after K accepted drafts."""
        return self.reference(p)

    def written(self, p: Floats, q: Floats) -> Floats:
        """Distribution of a judged position's token, accepted or recovered."""
        raise NotImplementedError

    def kept(self, p: Floats, q: Floats) -> Floats:
        """How much a token y of the text speaks for an accepted draft, (..., V): the input of `survival_along`."""
        raise NotImplementedError

    def survival_along(self, kept: Floats) -> Floats:
        """P(a step accepts at least 1..K drafts | the text), from `kept` of the step's tokens, (..., K)."""
        raise NotImplementedError

    def outcome(self, chain: Chain) -> Outcome:
        """The exact law of one step, by enumeration."""
        raise NotImplementedError

    def sample(self, chain: Chain, uniforms: Floats) -> Samples:
        """Draw N steps.

        Args:
            chain: the distributions.
            uniforms: (N, 2 K + 1) in [0, 1): draft and verdict of each position in turn, then the last token.
        """
        raise NotImplementedError


class TokenRule(VerificationRule):
    """A rule that judges drafts one at a time, left to right, and stops at the first rejection."""

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """P(accepted | this token was drafted), by token; d is what drafts are drawn from."""
        raise NotImplementedError

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """P(the draft is rejected and this token written instead), by token."""
        raise NotImplementedError

    def failing(self, p: Floats, d: Floats) -> Floats:
        """P(the draft is rejected), (..., 1)."""
        failing: Floats = 1.0 - (d * self.acceptance(p, d)).sum(axis=-1, keepdims=True)
        return failing

    def recovered(self, p: Floats, d: Floats, draft: Ints) -> Floats:
        """Distribution of the token written instead of rejected drafts (N,), rows (N, V)."""
        return normalised(self.rejected(p, d), p)

    def written(self, p: Floats, q: Floats) -> Floats:
        """Accepted and recovered mass."""
        d = self.drafted(q)
        return d * self.acceptance(p, d) + self.rejected(p, d)

    def kept(self, p: Floats, q: Floats) -> Floats:
        """P(accepted | the position's token), 0 for tokens that are never written."""
        d = self.drafted(q)
        accepted, written = d * self.acceptance(p, d), self.written(p, q)
        return np.minimum(np.divide(accepted, written, out=np.zeros_like(written), where=written > 0), 1.0)

    def survival_along(self, kept: Floats) -> Floats:
        """Products: verdicts on different positions are independent given the text."""
        return np.multiply.accumulate(kept, axis=-1)

    def outcome(self, chain: Chain) -> Outcome:
        """Mass of accepted prefixes, position by position; what is rejected goes on as the target writes."""
        references = [self.reference(rows) for rows in chain.target]
        alive: Floats = np.ones(())
        accepted, output = [], np.zeros((chain.vocabulary,) * len(references))
        for depth, (p, q) in enumerate(zip(chain.target, chain.draft, strict=False)):
            d = self.drafted(q)
            stopped = alive[..., None] * self.rejected(p, d)
            alive = alive[..., None] * d * self.acceptance(p, d)
            accepted.append(float(stopped.sum()))
            output += continued(stopped, references[depth + 1 :])
        accepted.append(float(alive.sum()))
        output += alive[..., None] * self.bonus(chain.target[-1])
        return Outcome(np.array(accepted), output)

    def sample(self, chain: Chain, uniforms: Floats) -> Samples:
        """Draw as an engine does: draft, judge, and write the recovered or the bonus token."""
        num, k = len(uniforms), chain.num_draft_tokens
        tokens, alive = np.full((num, k + 1), -1, np.int64), np.ones(num, np.bool_)
        accepted, prefix = np.zeros(num, np.int64), tuple[Ints, ...]()
        for depth in range(k):
            p, d = rows_at(chain.target, prefix, num), self.drafted(rows_at(chain.draft, prefix, num))
            draft = pick(d, uniforms[:, 2 * depth])
            verdict = uniforms[:, 2 * depth + 1] < self.acceptance(p, d)[np.arange(num), draft]
            stopped, alive = alive & ~verdict, alive & verdict
            tokens[alive, depth] = draft[alive]
            tokens[stopped, depth] = pick(self.recovered(p, d, draft), uniforms[:, -1])[stopped]
            accepted += alive
            prefix = (*prefix, draft)
        last = pick(self.bonus(rows_at(chain.target, prefix, num)), uniforms[:, -1])
        tokens[alive, k] = last[alive]
        return Samples(tokens, accepted)


def rows_at(conditionals: tuple[Floats, ...], prefix: tuple[Ints, ...], num: int) -> Floats:
    """(N, V) rows of the conditionals after the prefixes of N steps."""
    rows = conditionals[len(prefix)]
    return rows[prefix] if prefix else np.broadcast_to(rows, (num, len(rows)))


VERIFICATION: Family[VerificationRule] = Family("verification", "sim.verification")

__all__ = ["VERIFICATION", "Chain", "Floats", "Ints", "Outcome", "Samples", "TokenRule", "VerificationRule"]
