"""Prompt lookup: the longest suffix of prompt and output that occurred before, and what followed it there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sim.proposers.base import Drafts, copied
from sim.rng import Ints
from sim.token_streams.streams import TokenStreams

#: Which of several earlier occurrences is copied from.
Occurrence = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class NgramLookup:
    """The rule of vLLM's `ngram_proposer.py` (`earliest`), checked position by position on recorded runs of 0.10.1.

    Attributes:
        prompt_lookup_min, prompt_lookup_max: shortest and longest suffix that is looked up, in tokens.
        occurrence: `earliest` as vLLM (before and after its rewrite to one KMP pass, PR 22437, and on the GPU), Hugging
            Face's prompt lookup and the older path of TensorRT-LLM (`NgramPool`, `is_use_oldest: true`); `latest` as
            TensorRT-LLM with `is_use_oldest: false`, the only value that its newer n-gram drafter takes.
    """

    prompt_lookup_min: int
    prompt_lookup_max: int
    occurrence: Occurrence = "earliest"

    def check(self, streams: TokenStreams) -> str:
        """Nothing: any streams will do."""
        return ""

    def replay(self, streams: TokenStreams, max_draft_tokens: int) -> Drafts:
        """The K tokens after the match, fewer where the known tokens end."""
        source, _ = longest_matches(streams, self.prompt_lookup_min, self.prompt_lookup_max, self.occurrence)
        return copied(streams, source, max_draft_tokens, max_draft_tokens)


def longest_matches(
    streams: TokenStreams, shortest: int, longest: int, occurrence: Occurrence = "earliest"
) -> tuple[Ints, Ints]:
    """Where the longest suffix that occurred before did so, for every decode position; all positions at once.

    Args:
        streams: the requests; each is searched on its own.
        shortest: length of the shortest suffix that counts, in tokens.
        longest: length of the longest one.
        occurrence: which one when there are several of that length.

    Returns:
        (D,) index of the last token of the occurrence, -1 for none, and (D,) its length, 0 for none.
    """
    source = np.full(len(streams.tokens), -1, dtype=np.int64)
    length = np.zeros(len(streams.tokens), dtype=np.int64)
    for size, at, before in _repeats(streams, longest, occurrence):
        if size >= shortest:
            source[at], length[at] = before, size
    return source[streams.known_ends], length[streams.known_ends]


def _repeats(streams: TokenStreams, longest: int, occurrence: Occurrence) -> Iterator[tuple[int, Ints, Ints]]:
    """(n, ends of n-grams that occurred before, where) for n = 1, 2, ... while there are any.

    n-grams get a number each, from the number of the (n - 1)-gram before their last token: grams that occur once
    cannot become longer ones that occur twice, so every pass looks at fewer of them.
    """
    request = np.repeat(np.arange(len(streams)), streams.prompt_tokens + streams.output_tokens)
    _, token = np.unique(streams.tokens, return_inverse=True)
    width = np.int64(len(streams.tokens) + 1)
    gram = np.full(len(streams.tokens), -1, dtype=np.int64)  # number of the gram that ends here; -1: occurs only once
    ends, key = np.arange(len(streams.tokens)), request * width + token
    for size in range(1, longest + 1):
        _, first, number, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        before = ends[first][number] if occurrence == "earliest" else _previous(ends, number)
        again = (before >= 0) & (before < ends)
        yield size, ends[again], before[again]
        repeated = count[number] > 1
        gram[:] = -1
        gram[ends[repeated]] = number[repeated]
        ends = ends[repeated & (ends > 0)]
        ends = ends[(gram[ends - 1] >= 0) & (request[ends] == request[ends - 1])]
        if not len(ends):
            return
        key = gram[ends - 1] * width + token[ends]


def _previous(ends: Ints, number: Ints) -> Ints:
    """The end before this one with the same number; -1 for the first."""
    order = np.argsort(number, kind="stable")
    same = number[order[1:]] == number[order[:-1]]
    before = np.full(len(ends), -1, dtype=np.int64)
    before[order[1:][same]] = ends[order[:-1][same]]
    return before
