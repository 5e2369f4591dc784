"""Off for good when too few drafts are accepted: TensorRT-LLM's `SpeculationGate`.

`_torch/speculative/speculation_gate.py`: every step that verified drafts is a sample, accepted / drafted over the
batch. Once `acceptance_rate_window_size` samples were taken, speculation is switched off permanently as soon as the
mean of the last that many falls below `acceptance_rate_threshold`.
"""

from collections import deque
from typing import Literal, Self

from pydantic import ConfigDict, model_validator

from sim.draft_length.base import (
    DRAFT_LENGTH,
    AtZero,
    Choice,
    Load,
    Outcome,
    Rule,
    Setting,
    StoppingDraftLength,
    TableRule,
)
from sim.draft_length.draft_len_schedule import Schedule, check_schedule, schedule_rule, too_long
from sim.units import PositiveCount, Probability


@DRAFT_LENGTH.register
class AcceptanceGate(StoppingDraftLength):
    """Speculation is switched off for good when the rolling acceptance rate falls below a threshold (TensorRT-LLM).

    Attributes:
        acceptance_rate_window_size: steps in the window.
        acceptance_rate_threshold: accepted / drafted tokens below which it is switched off.
        draft_len_schedule: K by batch size while it is on, as in the kind of that name; null: `num_speculative_tokens`.
        at_zero: as in `draft_len_schedule`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "acceptance_gate", "acceptance_rate_window_size": 100, "acceptance_rate_threshold": 0.3}
            ]
        }
    )

    kind: Literal["acceptance_gate"] = "acceptance_gate"
    acceptance_rate_window_size: PositiveCount
    acceptance_rate_threshold: Probability
    draft_len_schedule: Schedule | None = None
    at_zero: AtZero = "stop"

    @model_validator(mode="after")
    def _rising(self) -> Self:
        check_schedule(self.draft_len_schedule or ())
        return self

    def wrong_for(self, max_draft_tokens: int) -> str:
        """A step above the largest K."""
        return too_long(self.draft_len_schedule, max_draft_tokens) if self.draft_len_schedule else ""

    def possible(self, max_draft_tokens: int, max_num_seqs: int) -> tuple[int, ...]:
        """What it picks while it is open."""
        return self._open(max_draft_tokens).possible(max_num_seqs)

    def _open(self, max_draft_tokens: int) -> TableRule:
        schedule = self.draft_len_schedule
        return schedule_rule(schedule) if schedule else TableRule.fixed(max_draft_tokens)

    def bind(self, setting: Setting) -> Rule:
        """The gate, open."""
        table = self._open(setting.max_draft_tokens)
        return Gate(table, self.acceptance_rate_window_size, self.acceptance_rate_threshold)


class Gate(Rule):
    """A rolling mean that closes once.

    Attributes:
        closed: speculation is off for good.
    """

    def __init__(self, table: TableRule, window: int, threshold: float) -> None:
        self._table, self._threshold = table, threshold
        self._rates: deque[float] = deque(maxlen=window)
        self.closed = False

    def observe(self, outcome: Outcome) -> None:
        """A step that verified drafts adds its acceptance rate."""
        drafted = int(outcome.drafts.sum())
        if self.closed or not drafted:
            return
        self._rates.append(int(outcome.accepted.sum()) / drafted)
        full = len(self._rates) == self._rates.maxlen
        self.closed = full and sum(self._rates) / len(self._rates) < self._threshold

    def choose(self, load: Load) -> Choice:
        """K of the schedule, or 0 once closed."""
        return Choice(0 if self.closed else self._table.at(load.num_seqs))
