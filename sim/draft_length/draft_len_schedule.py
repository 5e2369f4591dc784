"""K by upper bounds of the batch size, or on and off by one: TensorRT-LLM's `draft_len_schedule` and `max_concurrency`.

`llmapi/llm_args.py`, `DecodingBaseConfig` (since pull request 10860): `{4: 4, 8: 2, 32: 1}` drafts 4 tokens at batch
sizes 1 to 4, 2 at 5 to 8, 1 at 9 to 32, and none above; `max_concurrency: 32` drafts up to batch size 32 and not
above. The two exclude each other. (Releases before that read the keys of the schedule as lower bounds.)
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from sim.draft_length.base import DRAFT_LENGTH, AtZero, Rule, Setting, StoppingDraftLength, TableRule
from sim.units import PositiveCount

Step = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0)]]


def _as_steps(value: Any) -> Any:
    return (
        tuple(tuple(step) if isinstance(step, list) else step for step in value) if isinstance(value, list) else value
    )


Schedule = Annotated[tuple[Step, ...], BeforeValidator(_as_steps), Field(min_length=1)]


def check_schedule(schedule: Sequence[Step]) -> None:
    """ValueError unless the batch sizes rise."""
    for (low, _), (high, _) in pairwise(schedule):
        if high <= low:
            raise ValueError(f"batch sizes must rise; found {high} after {low}")


def schedule_rule(schedule: Sequence[Step]) -> TableRule:
    """K up to each bound, 0 above the last."""
    starts = [1, *(last + 1 for last, _ in schedule)]
    return TableRule.of(zip(starts, [*(k for _, k in schedule), 0], strict=True))


def too_long(schedule: Sequence[Step], max_draft_tokens: int) -> str:
    """Why a schedule asks for too many drafts; "" when it does not."""
    most = max(k for _, k in schedule)
    return (
        f"K = {most}; allowed: at most num_speculative_tokens = {max_draft_tokens}" if most > max_draft_tokens else ""
    )


@DRAFT_LENGTH.register
class DraftLenSchedule(StoppingDraftLength):
    """K by upper bounds of the batch size, none above the last (TensorRT-LLM). One of the two keys must be given.

    Attributes:
        draft_len_schedule: [largest batch size, K] steps; TensorRT-LLM writes `{4: 4, 8: 2}` for `[[4, 4], [8, 2]]`.
        max_concurrency: instead of a schedule: draft `num_speculative_tokens` up to this batch size.
        at_zero: as in `batch_table`, but TensorRT-LLM does not run its drafter while speculation is off: `stop`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "draft_len_schedule", "draft_len_schedule": [[4, 4], [8, 2], [32, 1]]},
                {"kind": "draft_len_schedule", "max_concurrency": 32},
            ]
        }
    )

    kind: Literal["draft_len_schedule"] = "draft_len_schedule"
    draft_len_schedule: Schedule | None = None
    max_concurrency: PositiveCount | None = None
    at_zero: AtZero = "stop"

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.draft_len_schedule is None) == (self.max_concurrency is None):
            raise ValueError("state either draft_len_schedule or max_concurrency")
        check_schedule(self.draft_len_schedule or ())
        return self

    def wrong_for(self, max_draft_tokens: int) -> str:
        """A step above the largest K."""
        return too_long(self.draft_len_schedule, max_draft_tokens) if self.draft_len_schedule else ""

    def bind(self, setting: Setting) -> Rule:
        """The look-up."""
        return self.table(setting.max_draft_tokens)

    def table(self, max_draft_tokens: int) -> TableRule:
        """The schedule, or one step of it."""
        return schedule_rule(self.draft_len_schedule or ((self.max_concurrency or 1, max_draft_tokens),))
