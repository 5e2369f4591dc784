"""The acceptance tape: how many drafts a verify step accepts, by output position. Contract of this folder.

For every request and output position the tape says how many drafts a verify step *starting there* would accept if the
draft were endless; a step with k drafts accepts min(tape[p], k) of them and emits one token more (the recovered or
the bonus token). Keyed by (seed, workload row, position), never by draw order: all arms and all K meet the same text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.acceptance.context_decay import ContextDecay
from sim.errors import ScenarioError
from sim.proposers.base import Proposer
from sim.rng import Floats, Ints, Streams
from sim.spec import Family, Spec
from sim.theory.draft_trees import TreeShape
from sim.theory.spellings import Spellings, from_survival
from sim.verification.base import VerificationRule
from sim.workload.requests import RequestTable

Counts = NDArray[np.uint8]

#: The largest number of drafts per step that any tape can express.
MAX_DRAFT_TOKENS = 64

#: In `Tape.reach`: not accepted, however many drafts are verified.
NEVER = 255


@dataclass(frozen=True, eq=False)
class Tape:
    """Acceptance of one arm on one request table, as flat arrays over output positions (`RequestTable.output_offset`).

    Attributes:
        accepted: (T,) drafts accepted by a step that starts at this output position, drafts counted without the bonus
            token, capped at the arm's largest K.
        proposed: (T,) drafts the drafter finds there (0: no match, nothing drafted and nothing verified), capped
            likewise; None when the drafter always proposes as many as asked. Never below `accepted`.
        by_k: K -> (T,) drafts accepted by a step that verifies K drafts, in ascending order of K, for drafters whose
            first drafts depend on K (block drafters). Empty for chains: there a step with k drafts accepts
            min(accepted, k). A number of drafts in between counts as the next smaller K.
        reach: (T, depth) for token trees: how many drafts a step must verify to accept 1, 2, ... of them, `NEVER` where
            it accepts no more. Nodes are verified in the order of the tree, so a tree cut short (token budget, smaller
            K) is its first nodes. None for chains, where d drafts accept d.
    """

    accepted: Counts
    proposed: Counts | None = None
    by_k: Mapping[int, Counts] = field(default_factory=dict)
    reach: Counts | None = None

    @property
    def tree_depth(self) -> int | None:
        """The most drafts that a step can accept; None for chains, which accept as many as are verified."""
        return None if self.reach is None else self.reach.shape[1]

    def at(self, num_draft_tokens: int) -> Counts:
        """(T,) drafts accepted by steps that verify this many drafts."""
        if self.reach is not None:
            at_most: Counts = (self.reach <= num_draft_tokens).sum(axis=1, dtype=np.uint8)
            return at_most
        if not self.by_k:
            return np.minimum(self.accepted, np.uint8(num_draft_tokens))
        below = [accepted for k, accepted in self.by_k.items() if k <= num_draft_tokens]
        return below[-1] if below else np.zeros_like(self.accepted)

    def taken(self, cursor: Ints, drafts: Ints | Counts) -> Ints:
        """(n,) drafts accepted by steps that start at `cursor` and verify `drafts`, both of shape (n,)."""
        if self.reach is not None:
            verified = np.asarray(drafts, np.int64)[:, None]
            accepted: Ints = (self.reach.take(cursor, axis=0) <= verified).sum(axis=1, dtype=np.int64)
            return accepted
        if not self.by_k:
            return np.minimum(self.accepted.take(cursor), drafts).astype(np.int64, copy=False)
        taken = np.zeros(len(cursor), np.int64)
        for k, counts in self.by_k.items():
            enough = drafts >= k
            taken[enough] = counts.take(cursor[enough])
        return taken

    def overlaid(self, other: "Tape", there: NDArray[np.bool_], num_draft_tokens: int) -> "Tape":
        """This tape with another one of the same drafts in its place `there`, shape (T,); up to so many drafts."""
        accepted, proposed, reach = np.where(there, other.accepted, self.accepted), None, None
        if self.proposed is not None or other.proposed is not None:
            always = np.full(len(there), num_draft_tokens, np.uint8)
            mine = always if self.proposed is None else self.proposed
            proposed = np.where(there, always if other.proposed is None else other.proposed, mine)
        if self.reach is not None and other.reach is not None:
            reach = np.where(there[:, None], other.reach, self.reach)
        known = sorted({*self.by_k, *other.by_k})
        return Tape(accepted, proposed, {k: np.where(there, other.at(k), self.at(k)) for k in known}, reach)

    def shortened(self, most: Counts) -> "Tape":
        """This tape with every run of accepted drafts ended after `most` of them, shape (T,)."""
        by_k = {k: np.minimum(accepted, most) for k, accepted in self.by_k.items()}
        reach = self.reach
        if reach is not None:
            reach = np.where(np.arange(reach.shape[1]) < most[:, None], reach, np.uint8(NEVER))
        return replace(self, accepted=np.minimum(self.accepted, most), by_k=by_k, reach=reach)

    def check(self) -> None:
        """Raise ValueError if a step would accept more drafts than were proposed."""
        if self.proposed is not None and bool((self.accepted > self.proposed).any()):
            raise ValueError("tape accepts more drafts than it proposes")
        if any(bool((accepted > k).any()) for k, accepted in self.by_k.items()):
            raise ValueError("tape accepts more drafts than are verified")
        if self.reach is not None and bool((self.reach <= np.arange(self.reach.shape[1])).any() or _falls(self.reach)):
            raise ValueError("tape accepts a draft before its parents")


def _falls(reach: Counts) -> bool:
    return bool((reach[:, 1:] < reach[:, :-1]).any())


class AcceptanceModel(Spec):
    """What a scenario writes under `acceptance:`; nothing is ever assumed for a speculative arm."""

    kind: str
    context_decay: ContextDecay | None = Field(
        default=None,
        description="less is accepted beyond the context the drafter was trained on. Default: no such limit",
    )

    def within_context(self, tape: Tape, requests: RequestTable, streams: Streams) -> Tape:
        """What a server meets: the tape of these requests, less what fails beyond the drafter's context."""
        if self.context_decay is None:
            return tape
        return tape.shortened(self.context_decay.reach(requests, streams))

    def spellings(self, num_draft_tokens: int) -> Spellings:
        """What steps of K drafts accept, in every spelling, within the drafter's context."""
        return from_survival(self.survival(num_draft_tokens))

    #: States how many drafts are accepted, so that it may have been measured with a token tree as well as with a chain.
    counts_accepted: ClassVar[bool] = False

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape for these requests.

        Args:
            requests: the rows to cover.
            max_draft_tokens: the arm's largest K, 1..MAX_DRAFT_TOKENS.
            streams: the replicate's random numbers.
        """
        raise NotImplementedError

    def survival(self, max_draft_tokens: int) -> Floats:
        """Unconditional rates s_1 >= s_2 >= ...: P(a step accepts at least i drafts), shape (max_draft_tokens,).

        Per verification step over long outputs, steps without drafts included; requests of equal length, so those that
        accept little count with more steps. Exact (closed form or quadrature) for every kind of this folder.
        Tokens per step (bonus included) are 1 + their sum.
        """
        raise NotImplementedError

    def tree_tape(self, requests: RequestTable, shape: TreeShape, streams: Streams) -> Tape:
        """Draw the tape of steps that verify token trees.

        Here for the kinds that state counts: they hold for the whole tree that they were measured with, and a tree cut
        short accepts nothing, since nobody said which of its branches was taken.

        Raises:
            ScenarioError: the model describes chains only.
        """
        self.check_tree(shape, shape.num_nodes)
        accepted = self.tape(requests, shape.depth, streams).accepted
        taken = np.arange(shape.depth) < accepted[:, None]
        return Tape(accepted, reach=np.where(taken, np.uint8(shape.num_nodes), np.uint8(NEVER)))

    def tree_survival(self, shape: TreeShape, num_draft_tokens: int) -> Floats:
        """As `survival` for steps that verify the first `num_draft_tokens` nodes of trees of this shape, (depth,).

        Raises:
            ScenarioError: the model describes chains only, or the whole tree only.
        """
        self.check_tree(shape, num_draft_tokens)
        return self.survival(shape.depth)

    def check_tree(self, shape: TreeShape, num_draft_tokens: int) -> None:
        """Refuse trees that this model says nothing about.

        Raises:
            ScenarioError: says what to write instead.
        """
        if not self.counts_accepted:
            raise ScenarioError(
                f"acceptance `{self.kind}` describes a chain, not a token tree; state acceptance by rank, such as "
                "{kind: per_rank, rates: [0.7, 0.12, 0.05]}, or the mean length measured with this tree, {kind: length}"
            )
        if num_draft_tokens != shape.num_nodes:
            raise ScenarioError(
                f"acceptance `{self.kind}` holds for the whole tree of {shape.num_nodes} nodes, not for "
                f"{num_draft_tokens} of them; state acceptance by rank ({{kind: per_rank}})"
            )
        self.check_draft_tokens(shape.depth)

    def max_supported_draft_tokens(self) -> int | None:
        """The largest K this model says something about; None when there is no limit."""
        return None

    def missing_draft_tokens(self, num_draft_tokens: Iterable[int]) -> tuple[int, ...]:
        """Those of the given K > 0 that this model says nothing about, in order; none for most kinds."""
        return ()

    def origin(self) -> str:
        """What a report should name beside the kind: profile, catalogue entry, what a file holds; "" for nothing."""
        return ""

    def located(self, base_dir: Path) -> Self:
        """This model with relative file names taken from `base_dir`; itself when it names no file."""
        return self

    def under(self, rule: VerificationRule) -> "AcceptanceModel":
        """This model when the arm verifies with `rule`; itself when its figures were measured under the rule."""
        return self

    def check_files(self) -> None:
        """Read the files it names, if any.

        Raises:
            ScenarioError: one of them cannot be used.
        """

    def drafted_by(self, proposer: Proposer | None) -> Self:
        """This model for an arm whose method drafts by `proposer` (None: not from tokens).

        Most kinds state what is accepted, whatever drafts, and return themselves.

        Raises:
            ScenarioError: acceptance is computed from tokens, and the method does not draft from them.
        """
        return self

    def check_draft_tokens(self, max_draft_tokens: int) -> None:
        """Refuse a K beyond `max_supported_draft_tokens`.

        Raises:
            ScenarioError: says both numbers.
        """
        limit = self.max_supported_draft_tokens()
        if limit is not None and max_draft_tokens > limit:
            raise ScenarioError(
                f"acceptance `{self.kind}` covers {limit} draft tokens per step, but {max_draft_tokens} are asked for; "
                f"lower num_speculative_tokens to {limit} or state the acceptance of the deeper drafts"
            )


ACCEPTANCE: Family[AcceptanceModel] = Family("acceptance", "sim.acceptance")

__all__ = ["ACCEPTANCE", "MAX_DRAFT_TOKENS", "AcceptanceModel", "Counts", "Floats", "Ints", "Streams", "Tape"]
