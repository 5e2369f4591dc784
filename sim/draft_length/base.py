"""How many tokens to draft for the next step. Contract of this folder.

A spec (`draft_length: {kind: ...}` of an arm) binds to a `Rule`. After every step the rule may look at what became of
the drafts (`observe`), then it picks K for the drafts proposed at the end of that step (`choose`), which the next
step verifies. Under asynchronous scheduling a step is scheduled before the one in flight is over, so `choose` is
asked one step earlier than its outcome is known, as in vLLM.

Rules that need only the batch size bind to a `TableRule`: their steps can be foreseen, so the server may leap.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.spec import Family, Spec
from sim.units import Microseconds, NonNegative

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Outcome(NamedTuple):
    """What a step made of its drafts; arrays over the requests that emitted tokens in it.

    Attributes:
        num_seqs: sequences scheduled in the step.
        rows: request table rows.
        drafts: drafts verified.
        accepted: drafts accepted, before trimming at the end of outputs.
    """

    num_seqs: int
    rows: Ints
    drafts: Ints
    accepted: Ints


class Load(NamedTuple):
    """The requests to draft for; arrays over those that emitted tokens in this step.

    Attributes:
        num_seqs: sequences scheduled in this step.
        rows: request table rows.
        cursor: flat output position where each one's next step starts.
        left: tokens it still has to emit there; 0 or less when it is done.
        kv_tokens: its known tokens.
        speculates: 1, or 0 for requests that opted out and get no drafts.
    """

    num_seqs: int
    rows: Ints
    cursor: Ints
    left: Ints
    kv_tokens: Ints
    speculates: Ints


class Choice(NamedTuple):
    """What to draft.

    Attributes:
        drafts: K for everybody, or drafts per request of the `Load`.
        passes: drafter passes that each request takes part in, when they differ from `drafts`.
    """

    drafts: int | Ints
    passes: Ints | None = None


class Rule:
    """A bound rule. Runs of one rule are never mixed: it may keep state."""

    def observe(self, outcome: Outcome) -> None:
        """Learn from a finished step."""

    def choose(self, load: Load) -> Choice:
        """K for the drafts proposed at the end of this step."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TableRule(Rule):
    """K that follows from the number of scheduled sequences alone: `k[i]` from `first[i]` sequences on."""

    first: tuple[int, ...]
    k: tuple[int, ...]

    @classmethod
    def of(cls, starts: Iterable[tuple[int, int]]) -> "TableRule":
        """From (first batch size, K) in ascending order, the first of them for batch size 1."""
        first, k = zip(*starts, strict=True)
        return cls(tuple(first), tuple(k))

    @classmethod
    def fixed(cls, num_draft_tokens: int) -> "TableRule":
        """The same K for every batch."""
        return cls((1,), (num_draft_tokens,))

    def possible(self, max_num_seqs: int) -> tuple[int, ...]:
        """Every K above 0 for batches up to this size, rising."""
        return tuple(sorted({self.at(num_seqs) for num_seqs in range(1, max_num_seqs + 1)} - {0}))

    def at(self, num_seqs: int) -> int:
        """K of the last entry that starts at or below `num_seqs`."""
        return self.k[max(0, bisect_right(self.first, num_seqs) - 1)]

    def choose(self, load: Load) -> Choice:
        """K for this batch size."""
        return Choice(self.at(load.num_seqs))


@dataclass(frozen=True)
class Setting:
    """What rules may know of the arm they are bound to.

    Attributes:
        max_draft_tokens: the largest K.
        max_num_seqs: most sequences of a step.
        num_requests: rows of the request table.
        step_seconds: (sequences, their KV tokens in all, drafts verified in all, drafter passes) -> seconds of a steady
            decode step, drafting and host included. What an engine would measure off line.
        survival: K -> (K,) P(a step accepts at least 1..K drafts), as measured off line on such traffic.
        verified: (cursor, drafts) -> drafts that the drafter finds there; below `drafts` for n-gram look-ups.
        taken: (cursor, drafts) -> drafts that will be accepted there: the future, for oracles only.
        confident: (threshold, sharpness) -> (T,) by flat output position: leading drafts of a step starting there whose
            probability is at least the threshold in the drafter's own eyes.
    """

    max_draft_tokens: int
    max_num_seqs: int
    num_requests: int
    step_seconds: Callable[[int, int, int, int], float]
    survival: Callable[[int], Floats]
    verified: Callable[[Ints, int], Ints]
    taken: Callable[[Ints, Ints], Ints]
    confident: Callable[[float, float], NDArray[np.uint8]]


class Switching(NamedTuple):
    """What it costs that K changes.

    Attributes:
        switch_s: host time when K differs from that of the step before.
        cudagraph_slowdown: relative slow-down of memory-bound target passes that only decode.
        drafter_stops: at K = 0 the drafter does not run at all, and has to catch up later.
    """

    switch_s: float = 0.0
    cudagraph_slowdown: float = 0.0
    drafter_stops: bool = False


NO_SWITCHING = Switching()


class DraftLength(Spec):
    """What a scenario writes under `draft_length:` of an arm."""

    kind: str

    @property
    def needs_chain(self) -> bool:
        """It reads acceptance by draft position, so that drafts must form a chain."""
        return False

    @property
    def needs_drafts(self) -> bool:
        """It decides while the drafts are made, which a step scheduled ahead cannot know."""
        return False

    @property
    def switching(self) -> Switching:
        """What it costs that K changes; nothing for a K that never does."""
        return NO_SWITCHING

    def wrong_for(self, max_draft_tokens: int) -> str:
        """Why this rule does not go with the largest K of the arm; "" when it does."""
        return ""

    def bind(self, setting: Setting) -> Rule:
        """The rule at run time."""
        raise NotImplementedError

    def table(self, max_draft_tokens: int) -> TableRule | None:
        """K by batch size, when nothing else decides it."""
        return None

    def possible(self, max_draft_tokens: int, max_num_seqs: int) -> tuple[int, ...]:
        """Every K above 0 that it may pick for batches up to `max_num_seqs`, rising."""
        table = self.table(max_draft_tokens)
        return tuple(range(1, max_draft_tokens + 1)) if table is None else table.possible(max_num_seqs)


class ChangingDraftLength(DraftLength):
    """A rule whose K changes between steps, and what that costs.

    Attributes:
        switch_us: host time each time K differs from that of the step before (another CUDA graph, other metadata). No
            engine publishes a figure; 0 until measured.
        cudagraph_slowdown: relative slow-down of memory-bound target passes without prefill, for engines that give up
            full CUDA graphs once K may change: 0.19 in vLLM issue 49548 (59.6 to 50.0 tok/s, single stream). vLLM's
            newer model runner keeps them (pull request 45953): 0.
    """

    switch_us: Microseconds = 0.0
    cudagraph_slowdown: NonNegative = 0.0

    @property
    def switching(self) -> Switching:
        """As written, in seconds."""
        return Switching(self.switch_us * 1e-6, self.cudagraph_slowdown)


AtZero = Literal["first_pass", "stop"]


class StoppingDraftLength(ChangingDraftLength):
    """A rule that can say K = 0.

    Attributes:
        at_zero: with K = 0 the drafter still takes in the target's tokens (`first_pass`, as vLLM), or it stops and,
            once K is above 0 again, first prefills what it missed (`stop`).
    """

    at_zero: AtZero = "first_pass"

    @property
    def switching(self) -> Switching:
        """As written, in seconds."""
        return super().switching._replace(drafter_stops=self.at_zero == "stop")


DRAFT_LENGTH: Family[DraftLength] = Family("draft_length", "sim.draft_length")
