"""Suffix decoding (arXiv 2411.04975) as ArcticInference does it for vLLM's `method: suffix`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.proposers.base import Drafts, as_drafts, leading_equal
from sim.proposers.suffix_tree import Node, SuffixTree
from sim.token_streams.streams import TokenStreams

#: A draft and its score.
Scored = tuple[list[int], float]
#: ArcticInference adds it before rounding the allowed length down.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class SuffixDecoding:
    """Drafts the most frequent continuation of some suffix of the context; the suffix whose draft scores best wins.

    The score of a draft is the sum of its tokens' estimated probabilities (frequencies along the path). A suffix of m
    tokens may draft `max_spec_factor` m tokens. One tree holds the request's own prompt and output, another the outputs
    of earlier requests (in the order of the file) and of this one; the request's own tree wins ties, as does the longer
    suffix.

    Attributes:
        max_tree_depth: longest suffix and draft together.
        max_cached_requests: outputs kept in the tree of all requests, oldest dropped first; 0 = no such tree. Streams
            whose ids cannot be compared between requests are replayed without it.
        max_spec_factor: drafts per token of the suffix.
        min_token_prob: drafts end where the estimated probability of the path falls below this.
    """

    max_tree_depth: int = 24
    max_cached_requests: int = 10_000
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1

    def check(self, streams: TokenStreams) -> str:
        """Whether requests can share a tree."""
        idle = self.max_cached_requests and not streams.comparable
        return "suffix_decoding_max_cached_requests: relabelled ids say nothing about other requests" if idle else ""

    def replay(self, streams: TokenStreams, max_draft_tokens: int) -> Drafts:
        """Requests one after another, each token by token; a step drafts from all tokens before it."""
        shared = SuffixTree(self.max_tree_depth) if self.max_cached_requests and streams.comparable else None
        found: list[tuple[int, int]] = []
        for prompt, output in streams.requests():
            found += self._request(prompt, output, shared, max_draft_tokens)
            if shared is not None:
                shared.end_sequence()
        return as_drafts(found)

    def _request(
        self, prompt: list[int], output: list[int], shared: SuffixTree | None, most: int
    ) -> Iterator[tuple[int, int]]:
        """(proposed, accepted) at each decode position."""
        own, context = SuffixTree(self.max_tree_depth), list(prompt)
        own.extend(prompt)
        while shared is not None and shared.num_sequences >= self.max_cached_requests:
            shared.remove_oldest()  # this request takes a place of its own
        for place, token in enumerate(output[:-1], start=1):
            context.append(token)
            own.append(token)
            draft, score = self._best(own, context, most)
            if shared is not None:
                shared.append(token)
                other, other_score = self._best(shared, context, most)
                draft = other if other_score > score else draft
            yield len(draft), leading_equal(draft, output, place)
        if shared is not None:
            shared.append(output[-1])

    def _best(self, tree: SuffixTree, context: Sequence[int], most: int) -> Scored:
        """The best draft of a tree: from the longest suffix down, until shorter ones cannot score more."""
        best: Scored = ([], 0.0)
        matches = list(self._matches(tree, context))
        for size in range(len(matches), 0, -1):
            limit = min(most, int(size * self.max_spec_factor + _ROUNDING))
            if limit <= best[1]:
                return best
            draft = tree.path(*matches[size - 1], size, limit, self.min_token_prob)
            if draft[1] > best[1]:
                best = draft
        return best

    def _matches(self, tree: SuffixTree, context: Sequence[int]) -> Iterator[tuple[Node, int]]:
        """Nodes of the last 1, 2, ... tokens, while they occur and can be continued."""
        longest = min(self.max_tree_depth, len(context)) - 1
        for node in tree.active[:longest]:
            yield node, 0
        if len(tree.active) < tree.num_current_tokens:
            return  # the next longer suffix occurs only here, at the end
        for size in range(len(tree.active) + 1, longest + 1):
            match = tree.find(context[-size:])
            if match is None:
                return
            yield match
