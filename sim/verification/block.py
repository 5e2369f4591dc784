"""`block`: drafts are judged together; the longest prefix that passes is kept (Sun et al., arXiv 2403.10444)."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from sim.verification.base import VERIFICATION, Chain, Floats, Ints, Outcome, Samples, VerificationRule, rows_at
from sim.verification.chain import continued, normalised, pick


@VERIFICATION.register
class Block(VerificationRule):
    """A step keeps the longest prefix of sampled drafts that passes a joint test; never less than token by token.

    With r_i = p / q of draft i and P_i = min(1, P_(i-1) r_i), P_0 = 1: P(at least i accepted | the drafts) = P_i, for
    every K >= i. Given the text it is the running minimum of the products of q / p. With greedy drafts it is
    `greedy_draft`. vLLM: `rejection_sample_method: block`.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "block"}]})

    lossless: ClassVar[bool] = True
    source: ClassVar[str] = "Sun et al., arXiv 2403.10444, Algorithm 2; vLLM vllm/config/speculative.py"
    needs_draft_probabilities: ClassVar[bool] = True
    judges_blocks: ClassVar[bool] = True

    kind: Literal["block"] = "block"

    def written(self, p: Floats, q: Floats) -> Floats:
        """The target's own."""
        return p

    def kept(self, p: Floats, q: Floats) -> Floats:
        """The ratio q / p, above 1 where the drafter overrates the token; 0 for tokens that are never written."""
        return np.divide(q, p, out=np.zeros_like(p), where=p > 0)

    def survival_along(self, kept: Floats) -> Floats:
        """Running minimum of the running products, at most 1."""
        with np.errstate(over="ignore", invalid="ignore"):
            products = np.multiply.accumulate(kept, axis=-1)
        return np.minimum(np.fmin.accumulate(products, axis=-1), 1.0)

    def outcome(self, chain: Chain) -> Outcome:
        """Verdicts from the last draft back: the step ends at i iff i passes and no later draft does."""
        shares = _shares(chain)
        passes = _passes(chain, shares)
        none_later: list[Floats] = [np.ones_like(shares[-1])]
        for q, passed in zip(reversed(chain.draft), reversed(passes[1:]), strict=True):
            none_later.insert(0, (q * (1.0 - passed) * none_later[0]).sum(axis=-1))
        drafted: Floats = np.ones(())
        accepted, output = [], np.zeros((chain.vocabulary,) * len(chain.target))
        for depth, passed in enumerate(passes):
            mass = drafted * passed * none_later[depth]
            accepted.append(float(mass.sum()))
            after = _after(chain, shares, depth)
            output += continued(mass[..., None] * after, chain.target[depth + 1 :])
            drafted = drafted[..., None] * chain.draft[depth] if depth < len(chain.draft) else drafted
        return Outcome(np.array(accepted), output)

    def sample(self, chain: Chain, uniforms: Floats) -> Samples:
        """Draw all drafts, then a verdict on every prefix; the longest that passes counts."""
        num, k, steps = len(uniforms), chain.num_draft_tokens, np.arange(len(uniforms))
        shares = _shares(chain)
        passes = _passes(chain, shares)
        prefix, accepted = tuple[Ints, ...](), np.zeros(num, np.int64)
        for depth in range(k):
            prefix = (*prefix, pick(rows_at(chain.draft, prefix, num), uniforms[:, 2 * depth]))
            accepted[uniforms[:, 2 * depth + 1] < passes[depth + 1][prefix]] = depth + 1
        tokens = np.full((num, k + 1), -1, np.int64)
        for depth in range(k + 1):
            ends, goes_on = accepted == depth, accepted > depth
            after = rows_at((*([np.empty(0)] * depth), _after(chain, shares, depth)), prefix[:depth], num)
            tokens[ends, depth] = pick(after, uniforms[:, -1])[ends]
            if depth < k:
                tokens[goes_on, depth] = prefix[depth][steps[goes_on]]
        return Samples(tokens, accepted)


def _shares(chain: Chain) -> list[Floats]:
    """P_i of every prefix: entry i has shape (V,) * i."""
    shares: list[Floats] = [np.ones(())]
    for p, q in zip(chain.target, chain.draft, strict=False):
        with np.errstate(over="ignore"):
            ratio = np.divide(p, q, out=np.zeros_like(p), where=q > 0)
            shares.append(np.minimum(shares[-1][..., None] * ratio, 1.0))
    return shares


def _passes(chain: Chain, shares: list[Floats]) -> list[Floats]:
    """h_i: P(prefix i passes its own test); 1 for the empty one, P_K for the whole."""
    passes: list[Floats] = [np.ones(())]
    for depth in range(1, chain.num_draft_tokens):
        excess = _excess(chain, shares, depth).sum(axis=-1)
        total = excess + 1.0 - shares[depth]
        passes.append(np.divide(excess, total, out=np.ones_like(total), where=total > 0))
    return [*passes, shares[-1]]


def _excess(chain: Chain, shares: list[Floats], depth: int) -> Floats:
    return np.maximum(shares[depth][..., None] * chain.target[depth] - chain.draft[depth], 0.0)


def _after(chain: Chain, shares: list[Floats], depth: int) -> Floats:
    """Distribution of the token after a step that keeps `depth` drafts: the residual, or the bonus token's."""
    p = chain.target[depth]
    return p if depth == chain.num_draft_tokens else normalised(_excess(chain, shares, depth), p)
