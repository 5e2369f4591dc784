"""Texts that are judged afterwards against the procedure itself: draft, verdict, recovered token, step after step."""

import numpy as np
import pytest

from sim.acceptance.base import Tape
from sim.acceptance.positions import Positions
from sim.acceptance.text_process import TokenDriven
from sim.acceptance.walk import walk
from sim.rng import Streams
from sim.verification.block import Block
from sim.verification.chain import Chain
from sim.verification.exact_match import ExactMatch
from sim.verification.greedy_draft import GreedyDraft
from sim.verification.rejection_sampling import RejectionSampling
from sim.workload.requests import RequestTable

SIZE, K = 3, 3
REQUESTS, STEPS, BURN_IN = 2000, 60, 8


@pytest.fixture(scope="module")
def bigrams():
    """Next-token distributions of both models by the token before, (V, V)."""
    generator = np.random.Generator(np.random.Philox(21))
    weights = generator.exponential(size=(2, SIZE, SIZE)) ** 2
    p, q = weights / weights.sum(axis=2, keepdims=True)
    return p, q


def chain_after(token, p, q):
    """The distributions of a step that starts behind this token."""
    rows = [(p[token], q[token])]
    for depth in range(1, K + 1):
        shape = (SIZE,) * depth + (SIZE,)
        rows.append((np.broadcast_to(p, shape), np.broadcast_to(q, shape)))
    return Chain(tuple(target for target, _ in rows), tuple(draft for _, draft in rows[:-1]))


def decoded(rule, p, q):
    """(REQUESTS, STEPS) accepted drafts of speculative decoding as engines do it."""
    generator = np.random.Generator(np.random.Philox(22))
    chains = [chain_after(token, p, q) for token in range(SIZE)]
    token, accepted = generator.integers(SIZE, size=REQUESTS), np.empty((REQUESTS, STEPS), np.int64)
    for step in range(STEPS):
        uniforms, before = generator.random((REQUESTS, 2 * K + 1)), token.copy()
        for context, chain in enumerate(chains):
            here = np.flatnonzero(before == context)
            drawn = rule.sample(chain, uniforms[here])
            accepted[here, step] = drawn.accepted
            token[here] = drawn.tokens[np.arange(len(here)), drawn.accepted]
    return accepted


@pytest.mark.parametrize(
    "rule", [RejectionSampling(), GreedyDraft(), ExactMatch(), Block()], ids=lambda rule: rule.kind
)
def test_judging_a_text_is_speculative_decoding(rule, bigrams):
    """Accepted drafts and their lag-1 correlation, each within 4 standard errors of both simulations."""
    p, q = bigrams
    process = TokenDriven(
        rule.written(p, q), rule.kept(p, q), np.full(SIZE, 1 / SIZE), np.tile(np.arange(SIZE), (SIZE, 1))
    )
    lengths = np.full(REQUESTS, STEPS * (K + 1))
    zeros = np.zeros(REQUESTS, np.int64)
    requests = RequestTable(zeros, zeros + 1, lengths, zeros, np.ones(REQUESTS, dtype=bool))
    positions = Positions(requests, K)
    tape = positions.trim(process.accepted(positions, Streams(23), rule, K))
    judged = first_steps(tape.reshape(REQUESTS, -1))
    done = decoded(rule, p, q)[:, BURN_IN:]
    for statistic in (lambda a: a, lambda a: a[:, 1:] * a[:, :-1]):
        mine, theirs = statistic(judged).mean(axis=1), statistic(done).mean(axis=1)
        error = np.sqrt((mine.var() + theirs.var()) / REQUESTS)
        assert abs(mine.mean() - theirs.mean()) < 4 * error
    if not rule.judges_blocks:
        error = done.mean(axis=1).std() / np.sqrt(REQUESTS)
        assert process.survival(K).sum() == pytest.approx(done.mean(), abs=4 * error)
        found = walk(Tape(tape), requests, K)
        assert 1 + process.survival(K).sum() == pytest.approx(found.tokens_per_step, abs=0.02)


def first_steps(tape):
    """(REQUESTS, steps) accepted drafts along each row: as many steps as every row has, the first ones left out."""
    rows, at, accepted = np.arange(len(tape)), np.ones(len(tape), np.int64), []
    while at.max() < tape.shape[1]:
        accepted.append(tape[rows, at].astype(np.int64))
        at += accepted[-1] + 1
    return np.stack(accepted[BURN_IN:], axis=1)
