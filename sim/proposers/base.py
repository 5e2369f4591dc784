"""What a proposer says of recorded requests: drafts found and drafts right, by position. Contract of this folder."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.rng import Ints
from sim.token_streams.streams import TokenStreams


@dataclass(frozen=True, eq=False)
class Drafts:
    """Drafts at every decode position of recorded requests, in the order of `TokenStreams.known_ends`.

    Attributes:
        proposed: (D,) drafts found by a step that starts there; 0 = nothing to verify.
        accepted: (D,) leading drafts that are the recorded output. The last output token never counts as a draft: the
            step's own token (bonus not counted here) brings it, so a step never runs past the recorded end.
    """

    proposed: Ints
    accepted: Ints


class Proposer(Protocol):
    """A rule with its settings; frozen and hashable, since replays are cached by it."""

    def __hash__(self) -> int: ...

    def check(self, streams: TokenStreams) -> str:
        """Which setting has no effect on these streams, and why; empty for none.

        Raises:
            ScenarioError: the streams lack what the rule needs, or a file of the rule cannot be read.
        """
        ...

    def replay(self, streams: TokenStreams, max_draft_tokens: int) -> Drafts:
        """Draft up to `max_draft_tokens` at every decode position, each from the recorded tokens before it.

        Raises:
            ScenarioError: the streams lack what the rule needs.
        """
        ...


def copied(streams: TokenStreams, source: Ints, limit: Ints | int, max_draft_tokens: int) -> Drafts:
    """Drafts that copy the request's own tokens.

    Args:
        streams: the requests.
        source: (D,) index into `streams.tokens` of the token before the copied text; -1 where nothing is copied.
        limit: most drafts, one number or (D,). Copies also end where the known tokens end.
        max_draft_tokens: K.
    """
    known, last = streams.known_ends, streams.request_ends - 1
    proposed = np.where(source >= 0, np.minimum(np.minimum(known - source, limit), max_draft_tokens), 0)
    accepted = np.zeros_like(proposed)
    alive = np.flatnonzero(proposed > 0)
    for depth in range(1, max_draft_tokens + 1):
        alive = alive[(proposed[alive] >= depth) & (known[alive] + depth < last[alive])]
        alive = alive[streams.tokens[source[alive] + depth] == streams.tokens[known[alive] + depth]]
        accepted[alive] = depth
    return Drafts(proposed, accepted)


def leading_equal(draft: list[int], output: list[int], start: int) -> int:
    """Leading drafts equal to the output from `start` on, its last token left out."""
    count = 0
    for token, right in zip(draft, output[start:-1], strict=False):
        if token != right:
            break
        count += 1
    return count


def as_drafts(found: list[tuple[int, int]]) -> Drafts:
    """Columns of (proposed, accepted) pairs."""
    table = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Drafts(table[:, 0], table[:, 1])
