"""A moving average of accepted drafts with hysteresis: SGLang's adaptive speculation.

`srt/speculative/adaptive_spec_params.py`, strategy `ema`, with its defaults. The batch size picks a slot (the last
that starts at or below it); each slot has candidate K, an average and a counter of its own. A step of a slot that
drafts moves the average of accepted drafts per request by `ema_alpha`. After `warmup_batches` steps, every
`update_interval` steps: from 0 go to the next candidate (a probe); else go down while the average is <= prev - 0.5 +
down_hysteresis (0.5 + down_hysteresis when prev is 0); if that changed nothing go up while it is > current - 0.5 +
up_hysteresis.
"""

from bisect import bisect_right
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sim.draft_length.base import DRAFT_LENGTH, AtZero, Choice, Load, Outcome, Rule, Setting, StoppingDraftLength
from sim.spec import Seq, Spec
from sim.units import PositiveCount


class Slot(Spec):
    """Candidates from one batch size on.

    Attributes:
        batch_size: where the slot starts.
        candidate_steps: K to choose from, ascending.
        up_hysteresis: added to the average needed to go up.
        down_hysteresis: added to the average at which to go down.
    """

    batch_size: PositiveCount
    candidate_steps: Annotated[Seq[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    up_hysteresis: float = 0.0
    down_hysteresis: float = 0.0

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.candidate_steps) != sorted(set(self.candidate_steps)):
            raise ValueError(f"candidate_steps must rise; found {list(self.candidate_steps)}")
        return self


#: SGLang's `DEFAULT_ADAPTIVE_CONFIG`.
SGLANG = (
    Slot(batch_size=1, candidate_steps=(1, 3, 5, 7), down_hysteresis=-0.25),
    Slot(batch_size=8, candidate_steps=(0, 1, 3)),
    Slot(batch_size=32, candidate_steps=(0, 1)),
    Slot(batch_size=64, candidate_steps=(0,)),
)


@DRAFT_LENGTH.register
class Ema(StoppingDraftLength):
    """K follows a moving average of accepted drafts, with hysteresis and candidates per batch size (SGLang).

    Attributes:
        slots: candidates by batch size; SGLang's by default, without those above `num_speculative_tokens`: 1, 3, 5, 7
            from batch size 1 (down_hysteresis -0.25), 0, 1, 3 from 8, 0, 1 from 32, and 0 from 64.
        ema_alpha: weight of a new step.
        warmup_batches: steps of a slot before its first decision.
        update_interval: steps of a slot between decisions.
        at_zero: as in `batch_table`, but SGLang's draft worker does not run without draft steps: `stop`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "ema"},
                {
                    "kind": "ema",
                    "slots": [
                        {"batch_size": 1, "candidate_steps": [1, 3], "down_hysteresis": -0.25},
                        {"batch_size": 32, "candidate_steps": [0, 1]},
                    ],
                    "update_interval": 10,
                },
            ]
        }
    )

    kind: Literal["ema"] = "ema"
    slots: Annotated[Seq[Slot], Field(min_length=1)] = SGLANG
    ema_alpha: Annotated[float, Field(gt=0, le=1)] = 0.2
    warmup_batches: Annotated[int, Field(ge=0)] = 10
    update_interval: PositiveCount = 5
    at_zero: AtZero = "stop"

    @model_validator(mode="after")
    def _rising(self) -> Self:
        sizes = [slot.batch_size for slot in self.slots]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"slots must have rising batch sizes; found {sizes}")
        return self

    @property
    def needs_chain(self) -> bool:
        """SGLang adapts chains only (top-k of 1)."""
        return True

    def wrong_for(self, max_draft_tokens: int) -> str:
        """Candidates above the largest K, when they are not the defaults."""
        most = max(slot.candidate_steps[-1] for slot in self.slots)
        if self.slots == SGLANG or most <= max_draft_tokens:
            return ""
        return f"candidate step {most}; allowed: at most num_speculative_tokens = {max_draft_tokens}"

    def bind(self, setting: Setting) -> Rule:
        """Every slot at its start: `num_speculative_tokens` if it is a candidate, else the middle candidate."""
        return EmaRule(self, setting.max_draft_tokens)


class EmaRule(Rule):
    """Slots with their averages."""

    def __init__(self, spec: Ema, max_draft_tokens: int) -> None:
        self._starts = [slot.batch_size for slot in spec.slots]
        self._slots = [_SlotState(slot, spec, max_draft_tokens) for slot in spec.slots]

    def observe(self, outcome: Outcome) -> None:
        """The slot of the batch learns, unless nothing could be verified."""
        n = len(outcome.accepted)
        if n:
            self._slot(outcome.num_seqs).update(int(outcome.accepted.sum()) / n)

    def choose(self, load: Load) -> Choice:
        """The present K of the batch's slot."""
        return Choice(self._slot(load.num_seqs).current)

    def _slot(self, num_seqs: int) -> "_SlotState":
        return self._slots[max(0, bisect_right(self._starts, num_seqs) - 1)]


class _SlotState:
    """One slot: the candidate it stands at, the average, and the steps it has seen."""

    def __init__(self, slot: Slot, spec: Ema, max_draft_tokens: int) -> None:
        self._spec, self._slot = spec, slot
        self._steps = [k for k in slot.candidate_steps if k <= max_draft_tokens] or [max_draft_tokens]
        at_most = max_draft_tokens in self._steps
        self._index = self._steps.index(max_draft_tokens) if at_most else len(self._steps) // 2
        self.average = float(self.current - 1)
        self._seen = 0

    @property
    def current(self) -> int:
        """K."""
        return self._steps[self._index]

    def update(self, accepted: float) -> None:
        """A step of this slot accepted so many drafts per request."""
        alpha = self._spec.ema_alpha
        if self.current:
            self.average = (1 - alpha) * self.average + alpha * accepted
        self._seen += 1
        decisions, rest = divmod(self._seen - self._spec.warmup_batches, self._spec.update_interval)
        if decisions > 0 and not rest:
            self._decide()

    def _decide(self) -> None:
        last, start = len(self._steps) - 1, self._index
        if not self.current:
            self._index = min(start + 1, last)
            if self.average < 0 < self.current:
                self.average = float(self.current - 1)
            return
        while self._index and self.average <= self._down_at(self._steps[self._index - 1]):
            self._index -= 1
        if self._index == start:
            while self._index < last and self.average > self.current - 0.5 + self._slot.up_hysteresis:
                self._index += 1

    def _down_at(self, previous: int) -> float:
        return (previous - 0.5 if previous else 0.5) + self._slot.down_hysteresis
