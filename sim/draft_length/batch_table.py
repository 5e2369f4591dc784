"""K by batch size: vLLM's `num_speculative_tokens_per_batch_size`, a list of inclusive [first, last, K] ranges.

As in vLLM (`v1/spec_decode/dynamic/manager.py`): the first range starts at 1, ranges ascend without overlap, gaps and
the tail inherit the K before them, and the key is the number of requests scheduled in this step, while the drafts are
verified in the next.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from sim.draft_length.base import DRAFT_LENGTH, Rule, Setting, StoppingDraftLength, TableRule

BatchRange = tuple[int, int, int]


def _as_ranges(value: Any) -> Any:
    return tuple(tuple(r) if isinstance(r, list) else r for r in value) if isinstance(value, list) else value


BatchRanges = Annotated[tuple[BatchRange, ...], BeforeValidator(_as_ranges)]


def check_ranges(ranges: Sequence[BatchRange], max_draft_tokens: int) -> None:
    """Refuse tables that vLLM would refuse.

    Raises:
        ValueError: empty, not starting at 1, overlapping, descending, or K outside 0..max_draft_tokens.
    """
    if not ranges:
        raise ValueError("needs at least one [first, last, K] range")
    expected = 1
    for first, last, k in ranges:
        if expected == 1 and first != 1:
            raise ValueError(f"the first range must start at batch size 1, found {first}")
        if first < expected or last < first:
            raise ValueError(f"range [{first}, {last}] must lie above {expected - 1} and not be empty")
        if not 0 <= k <= max_draft_tokens:
            raise ValueError(
                f"K = {k} of range [{first}, {last}] is outside 0..num_speculative_tokens = {max_draft_tokens}"
            )
        expected = last + 1


@DRAFT_LENGTH.register
class BatchTable(StoppingDraftLength):
    """K looked up by the number of requests scheduled in this step (vLLM).

    The same as `num_speculative_tokens_per_batch_size` in `speculative_config`, where it can be pasted; here the cost
    of switching can be stated too.

    Attributes:
        num_speculative_tokens_per_batch_size: inclusive [first, last, K] ranges; gaps and the tail inherit.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "batch_table",
                    "num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 64, 1], [65, 1024, 0]],
                }
            ]
        }
    )

    kind: Literal["batch_table"] = "batch_table"
    num_speculative_tokens_per_batch_size: BatchRanges

    def wrong_for(self, max_draft_tokens: int) -> str:
        """What vLLM would refuse."""
        try:
            check_ranges(self.num_speculative_tokens_per_batch_size, max_draft_tokens)
        except ValueError as error:
            return str(error)
        return ""

    def bind(self, setting: Setting) -> Rule:
        """The look-up."""
        return self.table(setting.max_draft_tokens)

    def table(self, max_draft_tokens: int) -> TableRule:
        """Gaps and the tail inherit, so only the starts matter."""
        return TableRule.of((first, k) for first, _, k in self.num_speculative_tokens_per_batch_size)
