"""Acceptance from given distributions and from n-gram models: against closed forms, enumeration and naive counting."""

from collections import Counter

import numpy as np
import pytest
from pydantic import ValidationError

from sim.acceptance.distributions import Distributions, Pair
from sim.acceptance.language_model import LanguageModels, _count
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.verification.block import Block
from sim.verification.exact_match import ExactMatch
from sim.verification.greedy_draft import GreedyDraft
from sim.verification.greedy_match import GreedyMatch
from sim.verification.membership import Membership
from sim.verification.rejection_sampling import RejectionSampling
from sim.workload.requests import RequestTable

TOY = Distributions(pairs=(Pair(target=(0.5, 0.3, 0.2), draft=(0.2, 0.6, 0.2)),))
BINARY = Distributions(pairs=(Pair(target=(1 / 3, 2 / 3), draft=(2 / 3, 1 / 3)),))
TEXT = (
    "the scheduler hands out one token budget per step. a request that speculates asks for its drafts and one more "
    "token; a request that waits asks for its prompt. when the budget is spent the step runs, and the tokens that the "
    "target keeps are handed to the requests. a short step is a cheap step, a long step is a dear one. "
    "a drafter that knows the text asks for many tokens and gets most of them; a drafter that guesses asks for many "
    "tokens and pays for all of them. when the batch is small, the weights are read for every step, and a token more "
    "is a token for free; when the batch is large, the step is paid by the token. "
)


def table(lengths):
    lengths = np.asarray(lengths, dtype=np.int64)
    zeros = np.zeros(len(lengths), dtype=np.int64)
    return RequestTable(zeros, zeros + 1, lengths, zeros, np.ones(len(lengths), dtype=bool))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def models(text, **fields):
    return Distributions(language_models=LanguageModels(text=text, **fields))


@pytest.mark.parametrize(
    ("rule", "alpha"),
    [(RejectionSampling(), 0.7), (GreedyDraft(), 0.3), (ExactMatch(), 0.32), (Membership(top_k=2), 0.8)],
)
def test_one_pair_is_iid_at_the_rate_of_the_rule(rule, alpha):
    assert TOY.under(rule).survival(4) == pytest.approx(alpha ** np.arange(1, 5), abs=1e-12)


def test_the_default_rule_is_the_greedy_draft():
    assert TOY.survival(3).tolist() == TOY.under(GreedyDraft()).survival(3).tolist()


@pytest.mark.parametrize(("k", "mean"), [(1, 2 / 3), (2, 11 / 9), (3, 5 / 3)])
def test_block_verification_reaches_its_enumerated_mean(k, mean):
    """The walked survival has a standard error below 0.002 here (half a million tokens); 4 of them."""
    assert BINARY.under(Block()).survival(k).sum() == pytest.approx(mean, abs=0.008)


def test_block_beats_rejection_sampling_on_the_same_text(text):
    pair = models(text, target_order=4, draft_order=2)
    block, tokenwise = (pair.under(rule).survival(5).sum() for rule in (Block(), RejectionSampling()))
    assert block > 1.01 * tokenwise


def test_pairs_that_stay_come_in_runs():
    """The first draft's rate is the mean of the two; a draft after an accepted one is likelier to be accepted."""
    pairs = (Pair(target=(1, 0), draft=(1, 0)), Pair(target=(0.2, 0.8), draft=(1, 0)))
    runs = Distributions(pairs=pairs, stay=0.9).under(RejectionSampling())
    mixed = Distributions(pairs=pairs).under(RejectionSampling())
    assert mixed.survival(3) == pytest.approx(0.6 ** np.arange(1, 4), abs=1e-12)
    s = runs.survival(3)
    assert s[1] / s[0] > s[0] + 0.1


def test_equal_models_accept_everything_and_more_context_accepts_more(text):
    same = models(text, target_order=3, draft_order=3)
    assert same.under(RejectionSampling()).survival(4) == pytest.approx(np.ones(4), abs=1e-9)
    found = [
        models(text, target_order=4, draft_order=n).under(RejectionSampling()).survival(1)[0] for n in (1, 2, 3, 4)
    ]
    assert found == sorted(found)
    assert found[0] < 0.5 < found[2]


def naive_probability(tokens, history, token, order, size, strength):
    """The recursion of the module's docstring on a ring, by counting all over again."""
    estimate = 1.0 / size
    for length in range(order):
        context = tuple(history[len(history) - length :])
        seen = Counter()
        for place in range(len(tokens)):
            before = tuple(tokens[(place - length + i) % len(tokens)] for i in range(length))
            if before == context:
                seen[tokens[place]] += 1
        estimate = (seen[token] + strength * estimate) / (sum(seen.values()) + strength)
    return estimate


def test_counted_models_are_those_of_the_definition(text):
    """Histories that the text does not know included: there the longest known context answers."""
    spec = LanguageModels(text=text, target_order=4, draft_order=2, smoothing=0.7)
    contexts, characters = _count(spec), list(TEXT.strip())
    by_rank = sorted(Counter(characters).items(), key=lambda item: (-item[1], item[0]))
    rank = {character: index for index, (character, _) in enumerate(by_rank)}
    tokens, size = [rank[character] for character in characters], len(rank)
    generator = np.random.Generator(np.random.Philox(4))
    state, history = 0, []
    for _ in range(25):
        assert contexts.model(4).sum(axis=1) == pytest.approx(np.ones(len(contexts.start)))
        token = int(generator.integers(size)) if generator.random() < 0.4 else tokens[len(history) % len(tokens)]
        for order in (1, 2, 4):
            if len(history) >= order - 1:
                expected = naive_probability(tokens, history, token, order, size, 0.7)
                assert contexts.model(order)[state, token] == pytest.approx(expected, rel=1e-12)
        state = int(contexts.next_context[state, token])
        history.append(token)


def test_temperature_is_a_power_of_both_models(text):
    rule = GreedyDraft()
    warm, cold = (models(text, temperature=t).process(rule) for t in (1.0, 0.5))
    squared = warm.written**2
    assert cold.written == pytest.approx(squared / squared.sum(axis=1, keepdims=True), rel=1e-12)
    assert models(text, temperature=0.3).under(rule).survival(1)[0] > models(text).under(rule).survival(1)[0]


def test_greedy_texts_run_into_loops_and_are_walked(text):
    """The survival is that of a walk, for it depends on where requests start."""
    model = models(text, target_order=4, draft_order=2).under(GreedyMatch())
    requests = table(np.full(1500, 500))
    found = walk(model.tape(requests, 3, Streams(5)), requests, 3)
    assert 1 + model.survival(3).sum() == pytest.approx(
        found.tokens_per_step, abs=6 * found.tokens_per_step_error + 0.01
    )


def test_token_by_token_rules_keep_the_law_of_one_flag_per_position(text):
    """`p + tape[p]` never decreases inside a row: a larger K never needs more steps."""
    tape = models(text, tokens="words", vocabulary=20).under(RejectionSampling()).tape(table([400]), 8, Streams(1))
    reach = np.arange(400) + tape.accepted
    inside = tape.accepted[:-1] < 8
    assert np.all(np.diff(reach)[inside] >= 0)


def test_words_outside_the_vocabulary_are_one_token(text):
    contexts = _count(LanguageModels(text=text, tokens="words", vocabulary=5, target_order=2, draft_order=1))
    assert contexts.rows[0].shape == (1, 5)
    assert contexts.rows[0][0, 4] > 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs either pairs or language_models"),
        ({"pairs": [{"target": [0.5, 0.5], "draft": [1.0]}]}, "target has 2 tokens, draft 1|at least 2"),
        ({"pairs": [{"target": [0.5, 0.5], "draft": [0.5, 0.4]}]}, "draft is no distribution: its sum is 0.9"),
        ({"pairs": [{"target": [1.5, -0.5], "draft": [0.5, 0.5]}]}, "its least -0.5"),
        ({"pairs": [{"target": [0.5, 0.5], "draft": [0.5, 0.5]}], "stay": 0.5}, "stay needs two or more pairs"),
        ({"pairs": [{"target": [0.5, 0.5], "draft": [0.5, 0.5]}] * 2, "stay": 1.0}, "stay"),
        ({"language_models": {"text": "a", "temperature": 0}}, "temperature"),
        ({"language_models": {"text": "a", "smoothing": 0}}, "smoothing"),
    ],
)
def test_refuses(fields, message):
    with pytest.raises(ValidationError, match=message):
        Distributions.model_validate({"kind": "distributions", **fields})


def test_texts_that_cannot_be_used_are_named(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("too short")
    for path, message in ((short, "9 characters"), (tmp_path / "missing.txt", "cannot be read")):
        with pytest.raises(ScenarioError, match=message):
            models(str(path)).check_files()
    generator = np.random.Generator(np.random.Philox(1))
    long = tmp_path / "long.txt"
    long.write_text("".join(generator.choice(list("abcdefghijklmnopqrstuvwxyz"), 60_000)))
    with pytest.raises(ScenarioError, match="lower the orders or the vocabulary"):
        models(str(long), target_order=8).check_files()
