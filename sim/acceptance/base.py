"""The acceptance tape: how many drafts a verify step accepts, by output position. Contract of this folder.

For every request and output position the tape says how many drafts a verify step *starting there* would accept if the
draft were endless; a step with k drafts accepts min(tape[p], k) of them and emits one token more (the recovered or
the bonus token). Keyed by (seed, workload row, position), never by draw order: all arms and all K meet the same text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sim.errors import ScenarioError
from sim.proposers.base import Proposer
from sim.rng import Floats, Ints, Streams
from sim.spec import Family, Spec
from sim.verification.base import VerificationRule
from sim.workload.requests import RequestTable

Counts = NDArray[np.uint8]

#: The largest number of drafts per step that any tape can express.
MAX_DRAFT_TOKENS = 64


@dataclass(frozen=True, eq=False)
class Tape:
    """Acceptance of one arm on one request table, as flat arrays over output positions (`RequestTable.output_offset`).

    Attributes:
        accepted: (T,) drafts accepted by a step that starts at this output position, drafts counted without the bonus
            token, capped at the arm's largest K.
        proposed: (T,) drafts the drafter finds there (0: no match, nothing drafted and nothing verified), capped
            likewise; None when the drafter always proposes as many as asked. Never below `accepted`.
        by_k: K -> (T,) drafts accepted by a step that verifies K drafts, in ascending order of K, for drafters whose
            first drafts depend on K (trees, block drafters). Empty for chains: there a step with k drafts accepts
            min(accepted, k). A number of drafts in between counts as the next smaller K.
    """

    accepted: Counts
    proposed: Counts | None = None
    by_k: Mapping[int, Counts] = field(default_factory=dict)

    def at(self, num_draft_tokens: int) -> Counts:
        """(T,) drafts accepted by steps that verify this many drafts."""
        if not self.by_k:
            return np.minimum(self.accepted, np.uint8(num_draft_tokens))
        below = [accepted for k, accepted in self.by_k.items() if k <= num_draft_tokens]
        return below[-1] if below else np.zeros_like(self.accepted)

    def taken(self, cursor: Ints, drafts: Ints | Counts) -> Ints:
        """(n,) drafts accepted by steps that start at `cursor` and verify `drafts`, both of shape (n,)."""
        if not self.by_k:
            return np.minimum(self.accepted.take(cursor), drafts).astype(np.int64, copy=False)
        taken = np.zeros(len(cursor), np.int64)
        for k, accepted in self.by_k.items():
            enough = drafts >= k
            taken[enough] = accepted.take(cursor[enough])
        return taken

    def check(self) -> None:
        """Raise ValueError if a step would accept more drafts than were proposed."""
        if self.proposed is not None and bool((self.accepted > self.proposed).any()):
            raise ValueError("tape accepts more drafts than it proposes")
        if any(bool((accepted > k).any()) for k, accepted in self.by_k.items()):
            raise ValueError("tape accepts more drafts than are verified")


class AcceptanceModel(Spec):
    """What a scenario writes under `acceptance:`; nothing is ever assumed for a speculative arm."""

    kind: str

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

    def max_supported_draft_tokens(self) -> int | None:
        """The largest K this model says something about; None when there is no limit."""
        return None

    def missing_draft_tokens(self, num_draft_tokens: Iterable[int]) -> tuple[int, ...]:
        """Those of the given K > 0 that this model says nothing about, in order; none for most kinds."""
        return ()

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
