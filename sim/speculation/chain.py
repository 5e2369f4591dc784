"""What chain methods share: K in vLLM's spelling, and a network that drafts in K passes or in one."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.draft_length.base import DraftLength
from sim.draft_length.batch_table import BatchRange, BatchTable, check_ranges
from sim.draft_length.fixed import Fixed
from sim.models.model import Model
from sim.speculation.base import Drafter, SpeculationMethod
from sim.speculation.drafters import AutoregressiveDrafter, ParallelDrafter
from sim.units import PositiveCount


def _as_ranges(value: Any) -> Any:
    return tuple(tuple(r) if isinstance(r, list) else r for r in value) if isinstance(value, list) else value


BatchRanges = Annotated[tuple[BatchRange, ...], BeforeValidator(_as_ranges)]


class ChainMethod(SpeculationMethod):
    """A method that drafts one chain of up to K tokens per request.

    Attributes:
        num_speculative_tokens: the largest K; the bonus token of the target is not one of them.
        num_speculative_tokens_per_batch_size: inclusive [first, last, K] ranges by scheduled requests; gaps and the
            tail inherit (vLLM's key of the same name). K = 0 still runs the first pass of a loaded drafter.
    """

    no_effect_keys: ClassVar[frozenset[str]] = frozenset(
        {"revision", "code_revision", "quantization", "max_model_len", "parallel_drafting", "attention_backend"}
    )

    num_speculative_tokens: Annotated[PositiveCount, Field(le=64)]
    num_speculative_tokens_per_batch_size: BatchRanges | None = None

    @model_validator(mode="after")
    def _check_ranges(self) -> "ChainMethod":
        if self.num_speculative_tokens_per_batch_size is not None:
            check_ranges(self.num_speculative_tokens_per_batch_size, self.num_speculative_tokens)
        return self

    @property
    def max_draft_tokens(self) -> int:
        """The largest K this config can ask for."""
        return self.num_speculative_tokens

    @property
    def lookahead_tokens(self) -> int:
        """KV slots for the next drafts: K for drafters with KV of their own (vLLM `num_lookahead_tokens`)."""
        return self.num_speculative_tokens

    @property
    def draft_length(self) -> DraftLength:
        """The rule that picks K for the next step."""
        ranges = self.num_speculative_tokens_per_batch_size
        return Fixed(self.num_speculative_tokens) if ranges is None else BatchTable.from_ranges(ranges)


class AutoregressiveMethod(ChainMethod):
    """A chain drafted by a network of its own: one pass over all that the target just did, then K - 1 of one token.

    Attributes:
        new_slots: see `AutoregressiveDrafter`.
    """

    new_slots: ClassVar[int] = 0

    draft_tensor_parallel_size: PositiveCount | None = None

    @property
    def drafts_in_parallel(self) -> bool:
        """Whether one pass drafts all tokens."""
        return False

    def num_draft_passes(self, num_draft_tokens: int) -> int:
        """K, or one pass; K = 0 still takes one, which keeps the drafter's KV in step."""
        return 1 if self.drafts_in_parallel else max(1, num_draft_tokens)

    def drafter_tensor_parallel_size(self, tensor_parallel_size: int) -> int:
        """`draft_tensor_parallel_size`, which vLLM allows to be 1 or the target's."""
        return self.draft_tensor_parallel_size or tensor_parallel_size

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price the passes on the deployment."""
        rhythm = ParallelDrafter if self.drafts_in_parallel else AutoregressiveDrafter
        return rhythm(cost, self.new_slots)

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """Shape of the drafting network."""
        raise NotImplementedError
