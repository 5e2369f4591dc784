"""Proposers against their definitions, written as plain loops."""

import runpy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.proposers.ngram import NgramLookup, longest_matches
from sim.proposers.retrieval import Retrieval
from sim.proposers.suffix import SuffixDecoding
from sim.proposers.suffix_tree import SuffixTree
from sim.token_streams.streams import TokenStreams

made_up = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "token_streams" / "synthetic.py")))
K = 4
#: Few different tokens, so that everything repeats.
sequences = st.lists(st.integers(0, 2), min_size=1, max_size=14)
request_lists = st.lists(st.tuples(sequences, sequences), min_size=1, max_size=4)


def looked_up(context, shortest, longest, occurrence):
    """The rule as vLLM's documentation reads: the longest suffix that occurs earlier, and what follows it there."""
    for size in range(min(longest, len(context) - 1), shortest - 1, -1):
        places = [p for p in range(len(context) - size) if context[p : p + size] == context[-size:]]
        if places:
            start = (places[0] if occurrence == "earliest" else places[-1]) + size
            return context[start : start + K]
    return []


def continued(texts, pattern, limit, max_depth, least):
    """Most frequent path after a pattern, from counts of whole strings; None where equals make it ambiguous."""
    draft, score, probability = [], 0.0, 1.0
    while len(draft) < min(limit, max_depth - len(pattern)):
        string = [*pattern, *draft]
        found = [
            (t, p + len(string))
            for t in texts
            for p in range(len(t) - len(string) + 1)
            if t[p : p + len(string)] == string
        ]
        follows = Counter(text[end] for text, end in found if end < len(text)).most_common(2)
        if not follows:
            break
        if len(follows) > 1 and follows[0][1] == follows[1][1]:
            return None
        probability *= follows[0][1] / len(found)
        if probability < least:
            break
        draft.append(follows[0][0])
        score += probability
    return draft, score


def equal_start(draft, right):
    return next((i for i, (a, b) in enumerate(zip(draft, right, strict=False)) if a != b), min(len(draft), len(right)))


@given(request_lists, st.integers(1, 3), st.integers(0, 3), st.sampled_from(["earliest", "latest"]))
def test_prompt_lookup_is_its_definition(requests, shortest, more, occurrence):
    found = NgramLookup(shortest, shortest + more, occurrence).replay(TokenStreams.of(requests), K)
    proposed, accepted = [], []
    for prompt, output in requests:
        for place in range(1, len(output)):
            draft = looked_up(prompt + output[:place], shortest, shortest + more, occurrence)
            proposed.append(len(draft))
            accepted.append(equal_start(draft, output[place:-1]))
    assert found.proposed.tolist() == proposed
    assert found.accepted.tolist() == accepted


def test_longest_match_reports_its_length_and_place():
    streams = TokenStreams.of([([5, 1, 2, 3, 9, 1, 2], [3, 7])])
    source, length = longest_matches(streams, 1, 8)
    assert (source.tolist(), length.tolist()) == ([3], [3])


@settings(max_examples=60)
@given(st.lists(sequences, min_size=1, max_size=3), st.integers(2, 6), st.floats(0, 0.6))
def test_tree_counts_every_string(texts, max_depth, least):
    """While it grows: every string up to the depth is found, and its best path is that of the counts."""
    tree, written = SuffixTree(max_depth), []
    for text in texts:
        written.append([])
        for token in text:
            tree.append(token)
            written[-1].append(token)
        _assert_tree_of(tree, written, max_depth, least)
        tree.end_sequence()


@settings(max_examples=60)
@given(st.lists(sequences, min_size=2, max_size=5), sequences, st.integers(2, 5))
def test_tree_forgets_the_oldest(texts, last, max_depth):
    tree = SuffixTree(max_depth)
    for text in texts:
        tree.extend(text)
        tree.end_sequence()
    for _ in texts[:-1]:
        tree.remove_oldest()
    assert tree.num_sequences == 1
    tree.extend(last)
    _assert_tree_of(tree, [texts[-1], last], max_depth, 0.1)


def _assert_tree_of(tree, texts, max_depth, least):
    strings = {tuple(t[p : p + n]) for t in texts for n in range(1, max_depth + 1) for p in range(len(t) - n + 1)}
    for string in sorted(strings):
        match = tree.find(string)
        assert match is not None
        expected = continued(texts, list(string), 3, max_depth, least)
        if expected is not None:
            draft, score = tree.path(*match, len(string), 3, least)
            assert draft == expected[0]
            assert score == pytest.approx(expected[1])
    assert tree.find([99]) is None
    last = texts[-1]
    repeated = [n for n in range(1, min(max_depth, len(last)) + 1) if _occurs(texts, last[-n:]) > 1]
    assert [node.count for node in tree.active] == [_occurs(texts, last[-n:]) for n in repeated]


def _occurs(texts, string):
    return sum(t[p : p + len(string)] == string for t in texts for p in range(len(t) - len(string) + 1))


def scored_best(texts, context, depth, factor, least):
    """ArcticInference's `speculate`: every suffix drafts, the best score wins, of equals the longer suffix."""
    best = ([], 0.0)
    for size in range(1, min(depth, len(context))):
        if not _occurs(texts, context[-size:]):
            break
        draft = continued(texts, context[-size:], min(K, int(size * factor + 1e-6)), depth, least)
        if draft is None:
            return None
        if draft[1] >= best[1]:
            best = draft
    return best


@settings(max_examples=150)
@given(
    request_lists, st.integers(3, 8), st.sampled_from([0.5, 1.0, 2.0]), st.floats(0, 0.5), st.sampled_from([0, 2, 100])
)
def test_suffix_decoding_is_its_definition(requests, depth, factor, least, cached):
    found = SuffixDecoding(depth, cached, factor, least).replay(TokenStreams.of(requests), K)
    position = 0
    for index, (prompt, output) in enumerate(requests):
        earlier = [other for _, other in requests[max(0, index - cached + 1) : index]] if cached else []
        for place in range(1, len(output)):
            context = prompt + output[:place]
            own = scored_best([context], context, depth, factor, least)
            shared = scored_best([*earlier, output[:place]], context, depth, factor, least) if cached else ([], 0.0)
            if own is not None and shared is not None:
                draft = shared[0] if shared[1] > own[1] + 1e-9 else own[0]
                if abs(shared[1] - own[1]) > 1e-9 or len(own[0]) == len(shared[0]) == 0 or not cached:
                    assert found.proposed[position] == len(draft)
                    assert found.accepted[position] == equal_start(draft, output[place:-1])
            position += 1
    assert position == len(found.proposed)


def test_a_repeated_sentence_is_drafted_to_the_length_of_the_match():
    """After m tokens of it, m more are drafted (factor 1); both trees hold it, the request's own is asked first."""
    sentence = list(range(10, 30))
    streams = TokenStreams.of([(sentence, [99, *sentence, 98])])
    found = SuffixDecoding(max_cached_requests=0).replay(streams, 16)
    assert found.proposed.tolist()[:6] == [0, 1, 2, 3, 4, 5]
    assert found.accepted.tolist()[:6] == [0, 1, 2, 3, 4, 5]
    assert found.proposed.max() == 12  # match and draft together are 24 at most


def test_retrieval_knows_only_other_requests():
    text = list(range(50, 80))
    streams = TokenStreams.of([([1], text), ([2], text), ([49, 50], text[1:])])
    first, second, third = np.split(Retrieval(16, 10).replay(streams, 4).accepted, [29, 58])
    assert first.max() == 0
    assert second[0] == 0  # one token is too short a suffix
    assert second[1:].tolist() == [4] * 24 + [3, 2, 1, 0]
    assert third.tolist() == second[1:].tolist()  # the prompt is context


def test_retrieval_from_a_datastore_file(tmp_path):
    text = list(range(50, 80))
    path = tmp_path / "store.jsonl"
    path.write_text(made_up.text([([1], text)]))
    streams = TokenStreams.of([([1], text)])
    found = Retrieval(16, 10, path).replay(streams, 16)
    assert found.proposed.tolist()[:3] == [0, 10, 10]
    assert found.accepted.tolist()[:3] == [0, 10, 10]


def test_relabelled_ids_are_compared_within_a_request_only():
    relabelled = TokenStreams.of([([0, 1, 2], [3, 4, 5]), ([0, 1, 2], [3, 4, 5])], comparable=False)
    assert SuffixDecoding().replay(relabelled, 3).proposed.max() == 0
    assert "relabelled" in SuffixDecoding().check(relabelled)
    assert SuffixDecoding(max_cached_requests=0).check(relabelled) == NgramLookup(1, 2).check(relabelled) == ""
    with pytest.raises(ScenarioError, match="real token ids"):
        Retrieval().replay(relabelled, 3)


def test_wider_settings_find_more_and_longer_matches_are_right_more_often():
    streams = TokenStreams.of(made_up.code_editing(60, seed=3))
    narrow, wide = NgramLookup(5, 5).replay(streams, 5), NgramLookup(2, 5).replay(streams, 5)
    assert np.all(wide.proposed >= narrow.proposed)
    assert narrow.accepted.sum() / narrow.proposed.sum() > wide.accepted.sum() / wide.proposed.sum()


def test_the_cache_of_outputs_helps_requests_that_share_text():
    streams = TokenStreams.of(made_up.code_editing(16, seed=3))
    alone, cached = (SuffixDecoding(max_cached_requests=n).replay(streams, 8).accepted.mean() for n in (0, 100))
    assert cached > alone
