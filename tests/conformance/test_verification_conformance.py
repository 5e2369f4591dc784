"""Every registered verification rule, present and future: exact laws on random distributions, and its sampler."""

from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.verification.base import VERIFICATION, VerificationRule
from sim.verification.chain import Chain, block_of, total_variation

ADAPTER = TypeAdapter(Annotated[VerificationRule, VERIFICATION])
RULES = [
    pytest.param(ADAPTER.validate_python(example), id=f"{kind}-{index}")
    for kind, cls in VERIFICATION.members().items()
    for index, example in enumerate(cls.model_config.get("json_schema_extra", {}).get("examples", [{"kind": kind}]))
]
every_rule = pytest.mark.parametrize("rule", RULES)
lossless_rules = pytest.mark.parametrize("rule", [param for param in RULES if param.values[0].lossless])
lossy_rules = pytest.mark.parametrize("rule", [param for param in RULES if not param.values[0].lossless])


def distributions(generator, shape, zeros):
    """Random rows over the last axis; some tokens have no mass, some rows have all of it on one token."""
    weights = generator.exponential(size=shape) ** 2
    weights[generator.random(shape) < zeros] = 0.0
    weights[weights.sum(axis=-1) == 0, 0] = 1.0
    return weights / weights.sum(axis=-1, keepdims=True)


def random_chain(seed, vocabulary=4, k=2, zeros=0.25, relation="other"):
    """Context-dependent p and q. `relation`: `other`, `equal` (p = q) or `disjoint` (no token in common)."""
    generator = np.random.Generator(np.random.Philox(seed))
    shapes = [(vocabulary,) * (depth + 1) for depth in range(k + 1)]
    target = [distributions(generator, shape, zeros) for shape in shapes]
    draft = [distributions(generator, shape, zeros) for shape in shapes[:-1]]
    if relation == "equal":
        draft = [np.array(p) for p in target[:-1]]
    if relation == "disjoint":
        half = vocabulary // 2
        for arrays, allowed in ((target, slice(half, None)), (draft, slice(0, half))):
            for array in arrays:
                kept = np.zeros_like(array)
                kept[..., allowed] = distributions(generator, array[..., allowed].shape, zeros)
                array[...] = kept
    return Chain(tuple(target), tuple(draft))


chains = st.builds(
    random_chain,
    seed=st.integers(0, 2**63),
    vocabulary=st.integers(2, 4),
    k=st.integers(1, 4),
    zeros=st.sampled_from([0.0, 0.3, 0.7]),
    relation=st.sampled_from(["other", "other", "equal", "disjoint"]),
)


def reference_block(rule, chain):
    return block_of([rule.reference(p) for p in chain.target])


@every_rule
def test_reads_back_from_its_own_dump_and_names_its_source(rule):
    again = ADAPTER.validate_python(rule.model_dump(mode="json"))
    assert again == rule
    assert hash(again) == hash(rule)
    assert len(rule.source) > 10
    fields = {name: field for name, field in type(rule).model_fields.items() if name != "kind"}
    assert all(field.description for field in fields.values())


@lossless_rules
@settings(max_examples=60)
@given(chain=chains)
def test_lossless_rules_write_what_the_target_writes(rule, chain):
    """The whole block of K + 1 tokens, not only its first one."""
    assert np.abs(rule.outcome(chain).output - reference_block(rule, chain)).max() <= 1e-12


@every_rule
@settings(max_examples=40)
@given(chain=chains)
def test_outcomes_are_distributions(rule, chain):
    found = rule.outcome(chain)
    assert found.accepted.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.output.sum() == pytest.approx(1.0, abs=1e-12)
    assert min(found.accepted.min(), found.output.min()) >= -1e-15
    assert len(found.accepted) == chain.num_draft_tokens + 1


@every_rule
@settings(max_examples=40)
@given(chain=chains)
def test_a_text_tells_its_accepted_drafts(rule, chain):
    """Averaged over the text that the rule writes, `survival_along` gives P(at least i drafts accepted)."""
    pairs = list(zip(chain.target, chain.draft, strict=False))
    text = block_of([rule.written(p, q) for p, q in pairs])
    size, k = chain.vocabulary, chain.num_draft_tokens
    kept = np.stack([np.broadcast_to(_widened(rule.kept(p, q), k), (size,) * k) for p, q in pairs], axis=-1)
    expected = (text[..., None] * rule.survival_along(kept)).reshape(-1, k).sum(axis=0)
    accepted = rule.outcome(chain).accepted
    assert expected == pytest.approx(np.cumsum(accepted[::-1])[::-1][1:], abs=1e-12)


def _widened(array, axes):
    return array.reshape(array.shape + (1,) * (axes - array.ndim))


@every_rule
@settings(max_examples=25)
@given(chain=chains, fewer=st.integers(1, 3))
def test_a_shorter_draft_accepts_the_same_or_fewer(rule, chain, fewer):
    """P(at least i accepted) does not depend on K >= i: a smaller K is the same tape, cut."""
    k = min(fewer, chain.num_draft_tokens)
    cut = Chain(chain.target[: k + 1], chain.draft[:k])
    whole, part = rule.outcome(chain).accepted, rule.outcome(cut).accepted
    at_least = np.cumsum(whole[::-1])[::-1][1 : k + 1]
    assert at_least == pytest.approx(np.cumsum(part[::-1])[::-1][1:], abs=1e-12)


@lossy_rules
def test_lossy_rules_are_shown_to_be_off(rule):
    chain = Chain.repeated((0.5, 0.3, 0.2), (0.2, 0.6, 0.2), 1)
    assert total_variation(rule.outcome(chain).output, reference_block(rule, chain)) > 0.1


@every_rule
@pytest.mark.parametrize("relation", ["other", "equal", "disjoint"])
def test_sampler_agrees_with_the_exact_law(rule, relation):
    """Accepted counts and first tokens: every frequency within 5 standard errors of its probability."""
    num, chain = 40_000, random_chain(7, vocabulary=3, k=3, relation=relation)
    uniforms = np.random.Generator(np.random.Philox(11)).random((num, 7))
    drawn, found = rule.sample(chain, uniforms), rule.outcome(chain)
    for counts, law in ((drawn.accepted, found.accepted), (drawn.tokens[:, 0], found.first_token)):
        seen = np.bincount(counts, minlength=len(law)) / num
        assert np.all(np.abs(seen - law) <= 5 * np.sqrt(np.abs(law * (1 - law)) / num) + 1e-12)


@every_rule
def test_sampled_steps_emit_one_token_more_than_they_accept(rule):
    chain = random_chain(3, vocabulary=4, k=4)
    drawn = rule.sample(chain, np.random.Generator(np.random.Philox(2)).random((500, 9)))
    assert np.array_equal((drawn.tokens >= 0).sum(axis=1), drawn.accepted + 1)
    assert np.array_equal(drawn.tokens >= 0, np.arange(5) <= drawn.accepted[:, None])
