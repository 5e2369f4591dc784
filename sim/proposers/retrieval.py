"""REST (arXiv 2311.08252): drafts looked up in a datastore of other texts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.errors import ScenarioError
from sim.proposers.base import Drafts, as_drafts, leading_equal
from sim.proposers.suffix_tree import SuffixTree
from sim.token_streams.streams import TokenStreams, read_streams

#: The shortest suffix looked up (REST `human_eval/rest_test.py`).
_SHORTEST = 2


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Drafts the most frequent continuation of the longest suffix of the context that the datastore holds.

    The reference implementation verifies a tree, the 64 most frequent nodes of up to 5000 continuations; here the most
    frequent path of all continuations is drafted, as a chain.

    Attributes:
        max_token_span: longest suffix looked up, in tokens.
        max_continuation: longest draft, in tokens.
        datastore: token streams whose outputs are looked up in; None: the outputs of the requests before, in the order
            of the replayed file.
    """

    max_token_span: int = 16
    max_continuation: int = 10
    datastore: Path | None = None

    def check(self, streams: TokenStreams) -> str:
        """Refuse ids that cannot be compared between texts, and a datastore that cannot be read."""
        store = streams if self.datastore is None else read_streams(self.datastore)
        if not (streams.comparable and store.comparable):
            raise ScenarioError("retrieval needs real token ids; relabelled ids say nothing about other requests")
        return ""

    def replay(self, streams: TokenStreams, max_draft_tokens: int) -> Drafts:
        """Requests one after another; a request's own tokens are context, never datastore.

        Raises:
            ScenarioError: see `check`.
        """
        self.check(streams)
        tree = SuffixTree(self.max_token_span + self.max_continuation)
        store = None if self.datastore is None else read_streams(self.datastore)
        for _, output in store.requests() if store is not None else ():
            _add(tree, output)
        found: list[tuple[int, int]] = []
        for prompt, output in streams.requests():
            found += self._request(tree, prompt, output, min(max_draft_tokens, self.max_continuation))
            if store is None:
                _add(tree, output)
        return as_drafts(found)

    def _request(self, tree: SuffixTree, prompt: list[int], output: list[int], most: int) -> Iterator[tuple[int, int]]:
        """(proposed, accepted) at each decode position."""
        context = list(prompt)
        for place, token in enumerate(output[:-1], start=1):
            context.append(token)
            draft = self._draft(tree, context[-self.max_token_span :], most)
            yield len(draft), leading_equal(draft, output, place)

    def _draft(self, tree: SuffixTree, context: list[int], most: int) -> list[int]:
        draft: list[int] = []
        for size in range(_SHORTEST, len(context) + 1):
            match = tree.find(context[-size:])
            if match is None:
                break
            draft = tree.path(*match, size, most)[0]
        return draft


def _add(tree: SuffixTree, output: list[int]) -> None:
    tree.extend(output)
    tree.end_sequence()
