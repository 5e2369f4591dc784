"""Every verification rule on one pair of distributions: how far its output is from the target's, exact and sampled."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import TypeAdapter

from sim.rng import Streams
from sim.verification.base import VERIFICATION, VerificationRule, rows_at
from sim.verification.chain import Chain, Floats, Ints, block_of, pick, total_variation


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """One rule.

    Attributes:
        rule: its kind.
        parameters: fields that are not at their default, as text.
        lossless: what the rule claims.
        reference: what its output is compared with: `p`, or `argmax p` for rules of greedy decoding.
        acceptance: P(the first draft is accepted).
        tokens_per_step: with the bonus token.
        tv_exact: total variation distance of the block of K + 1 tokens from the reference's, by enumeration.
        tv_sampled: the same from sampled steps.
        tv_error: its standard error.
        tv_chance: what a rule without any error would show on average: sampling noise alone.
    """

    rule: str
    parameters: str
    lossless: bool
    reference: str
    acceptance: float
    tokens_per_step: float
    tv_exact: float
    tv_sampled: float
    tv_error: float
    tv_chance: float


def rules() -> tuple[VerificationRule, ...]:
    """Every registered rule as in its examples."""
    adapter: TypeAdapter[VerificationRule] = TypeAdapter(Annotated[VerificationRule, VERIFICATION])
    examples = [
        example for kind, spec in VERIFICATION.members().items() for example in _examples(spec) or [{"kind": kind}]
    ]
    found = [adapter.validate_python(example) for example in examples]
    return tuple(sorted(found, key=lambda rule: not rule.lossless))


def _examples(spec: type[VerificationRule]) -> list[object]:
    extra = spec.model_config.get("json_schema_extra")
    examples = extra.get("examples") if isinstance(extra, dict) else None
    return list(examples) if isinstance(examples, list) else []


def check_rule(rule: VerificationRule, chain: Chain, num_samples: int, streams: Streams) -> RuleCheck:
    """Hold a rule against its reference on a chain.

    Args:
        rule: the rule.
        chain: distributions of K positions.
        num_samples: steps to draw.
        streams: random numbers; each rule has its own.
    """
    reference = block_of([rule.reference(p) for p in chain.target])
    outcome = rule.outcome(chain)
    counts = np.bincount(_sampled_blocks(rule, chain, num_samples, streams), minlength=reference.size)
    expected, seen = reference.ravel(), counts / num_samples
    signs = np.sign(seen - expected)
    spread = float(seen @ signs**2 - (seen @ signs) ** 2)
    return RuleCheck(
        rule=rule.kind,
        parameters=", ".join(f"{k} {v:g}" for k, v in rule.model_dump(exclude_defaults=True).items()),
        lossless=rule.lossless,
        reference="p" if np.array_equal(rule.reference(chain.target[0]), chain.target[0]) else "argmax p",
        acceptance=outcome.acceptance,
        tokens_per_step=1.0 + outcome.mean_accepted,
        tv_exact=total_variation(outcome.output, reference),
        tv_sampled=total_variation(seen, expected),
        tv_error=0.5 * (max(spread, 0.0) / num_samples) ** 0.5,
        tv_chance=float(np.sqrt(expected * (1.0 - expected) / (2.0 * np.pi * num_samples)).sum()),
    )


def _sampled_blocks(rule: VerificationRule, chain: Chain, num_samples: int, streams: Streams) -> Ints:
    """Blocks of K + 1 tokens as flat indices: emitted tokens, and after them what the reference writes."""
    k, name = chain.num_draft_tokens, f"theory/lossless/{rule!r}"
    drawn = streams.per_row(name, num_samples * (3 * k + 2)).reshape(num_samples, -1)
    tokens = rule.sample(chain, drawn[:, : 2 * k + 1]).tokens
    prefix = tuple[Ints, ...]()
    for depth in range(k + 1):
        further = pick(rule.reference(rows_at(chain.target, prefix, num_samples)), drawn[:, 2 * k + 1 + depth])
        prefix = (*prefix, np.where(tokens[:, depth] >= 0, tokens[:, depth], further))
    return np.ravel_multi_index(prefix, (chain.vocabulary,) * (k + 1))


def random_pair(vocabulary: int, streams: Streams) -> tuple[Floats, Floats]:
    """Two distributions drawn uniformly from the simplex."""
    weights = -np.log1p(-streams.per_row("theory/lossless/pair", 2 * vocabulary)).reshape(2, -1)
    p, q = weights / weights.sum(axis=1, keepdims=True)
    return p, q
