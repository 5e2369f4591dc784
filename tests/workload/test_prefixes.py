"""What prompts share: system prompts, sessions, block hashes."""

from pathlib import Path

import numpy as np
import pytest

from sim.rng import Streams
from sim.workload.prefixes import BlockHashes, SharedPrefix
from sim.workload.requests import RequestTable, SharedPrefixes
from sim.workload.workload import Workload

FIXED = {"prompt_tokens": {"kind": "fixed", "value": 100}, "output_tokens": {"kind": "fixed", "value": 40}}
CLOSED = {"kind": "closed", "max_concurrency": 4}
TURNS = {"kind": "uniform", "min": 1, "max": 9}
SESSIONS = {"kind": "sessions", "turns": TURNS, "think_time": 7.0, "max_concurrent_sessions": 8}


def draw(num: int = 400, **parts: object) -> RequestTable:
    spec = Workload.model_validate({"arrivals": CLOSED, **FIXED, "num_requests": num, **parts})
    return spec.requests(Streams(5, 1), Path())


def prefixes(requests: RequestTable) -> SharedPrefixes:
    assert requests.prefixes is not None
    parent, tokens = requests.prefixes.parent, requests.prefixes.tokens
    assert (parent < np.arange(len(requests))).all()
    assert (tokens[parent < 0] == 0).all()
    assert (tokens <= requests.prompt_tokens).all()
    assert (tokens <= (requests.prompt_tokens + requests.output_tokens)[parent]).all()
    return requests.prefixes


def test_nothing_is_shared_unless_it_is_said() -> None:
    requests = draw()
    assert requests.prefixes is None
    assert requests.sessions is None


def test_a_system_prompt_comes_on_top_and_is_the_same_for_all() -> None:
    requests = draw(shared_prefix=800)
    shared = prefixes(requests)
    assert (requests.prompt_tokens == 900).all()
    assert shared.tokens.tolist() == [0] + [800] * 399
    assert shared.parent.tolist() == [-1] + [0] * 399


def test_more_requests_never_change_the_first_ones() -> None:
    for parts in ({"shared_prefix": {"tokens": 500, "count": 7, "skew": 1}}, {"arrivals": SESSIONS}):
        few, many = draw(90, **parts), draw(400, **parts)
        assert (few.prompt_tokens == many.prompt_tokens[:90]).all()
        assert (prefixes(few).tokens == prefixes(many).tokens[:90]).all()


def test_classes_have_prefixes_of_their_own() -> None:
    classes = [
        {"name": "agent", "share": 1, "shared_prefix": 2000},
        {"name": "chat", "share": 1},
        {"name": "rag", "share": 1, "shared_prefix": {"tokens": 300, "count": 4}},
    ]
    requests = draw(classes=classes, shared_prefix=50)
    shared = prefixes(requests)
    lengths = np.array([2000, 50, 300])[requests.class_id]
    assert (requests.prompt_tokens == 100 + lengths).all()
    assert (requests.class_id[shared.parent] == requests.class_id)[shared.parent >= 0].all()
    assert np.count_nonzero(shared.parent < 0) == 1 + 1 + 4
    assert (shared.tokens == lengths)[shared.parent >= 0].all()


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_popularity_follows_zipfs_law(skew: float) -> None:
    chosen = SharedPrefix(tokens=10, count=20, skew=skew).choose(Streams(3).per_row("test", 20_000))
    weights = np.arange(1, 21) ** -skew
    expected = 20_000 * weights / weights.sum()
    # multinomial counts: 4.5 standard errors of each
    assert (np.abs(np.bincount(chosen, minlength=20) - expected) < 4.5 * np.sqrt(expected)).all()


def test_a_turn_begins_with_all_that_was_said_before() -> None:
    requests = draw(arrivals=SESSIONS, shared_prefix=800)
    shared, sessions = prefixes(requests), requests.sessions
    assert sessions is not None
    later = np.flatnonzero(sessions.turn)
    before = (requests.prompt_tokens + requests.output_tokens)[later - 1]
    assert (shared.parent[later] == later - 1).all()
    assert (shared.tokens[later] == before).all()
    assert (requests.prompt_tokens[later] == before + 100).all()
    assert (requests.prompt_tokens == 900 + 140 * sessions.turn).all()
    first = np.flatnonzero(sessions.turn == 0)
    assert (shared.tokens[first][1:] == 800).all()
    assert (requests.class_id == requests.class_id[sessions.first_row]).all()
    assert (sessions.think_ns[first] == 0).all()
    thought = sessions.think_ns[later] / 1e9
    assert thought.mean() == pytest.approx(7.0, rel=4 / len(later) ** 0.5)


def test_facts_foresee_what_sessions_draw() -> None:
    spec = Workload.model_validate({"arrivals": SESSIONS, **FIXED, "shared_prefix": 800, "num_requests": 20_000})
    facts, requests = spec.facts(Path()), spec.requests(Streams(5, 1), Path())
    # turns of 4000 sessions of 1..9 turns: standard error of the mean prompt about 1.5 %
    assert facts.mean_prompt_tokens == pytest.approx(requests.prompt_tokens.mean(), rel=0.05)
    assert facts.max_prompt_tokens == requests.prompt_tokens.max() == 900 + 8 * 140


def test_hashes_share_the_longest_path() -> None:
    rows = [[1, 2, 3], [1, 2, 9, 3], [1, 2, 9, 3, 4], [7], [1, 2]]
    prompt = np.array([1500, 2000, 2100, 512, 1000])
    shared = BlockHashes.of(rows).shared(np.arange(5), prompt)
    assert shared.parent.tolist() == [-1, 0, 1, -1, 0]
    assert shared.tokens.tolist() == [0, 1024, 2000, 0, 1000]


def test_a_trace_row_that_comes_around_again_is_other_text() -> None:
    hashes = BlockHashes.of([[1, 2], [1, 3]])
    shared = hashes.shared(np.array([0, 1, 0, 1]), np.full(4, 1024))
    assert shared.parent.tolist() == [-1, 0, -1, 2]
    assert hashes.rows(slice(1, 2)).shared(np.array([0]), np.array([1024])).parent.tolist() == [-1]
