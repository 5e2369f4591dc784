"""`arms:` of a scenario: one way of decoding each, all run on the same requests."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel
from sim.draft_length.base import DRAFT_LENGTH, DraftLength
from sim.spec import Spec
from sim.speculation.base import SPECULATION, SpeculationMethod
from sim.speculation.plain import Plain


def _null_is_plain(value: object) -> object:
    return {"method": "plain"} if value is None else value


SpeculativeConfig = Annotated[SpeculationMethod, SPECULATION, BeforeValidator(_null_is_plain)]


class Arm(Spec):
    """How one arm decodes. `{}` is plain decoding.

    Attributes:
        speculative_config: vLLM's `--speculative-config`.
        draft_length: how K is picked at run time; the largest K is that of `speculative_config`. Default: always that
            one, or vLLM's `num_speculative_tokens_per_batch_size` where it is given.
        acceptance: how many drafts are accepted; required when the arm speculates, never assumed.
        class_acceptance: other acceptance for some traffic classes, by class name.
    """

    speculative_config: SpeculativeConfig = Field(default_factory=Plain)
    draft_length: Annotated[DraftLength, DRAFT_LENGTH] | None = None
    acceptance: Annotated[AcceptanceModel, ACCEPTANCE] | None = None
    class_acceptance: dict[str, Annotated[AcceptanceModel, ACCEPTANCE]] = Field(default_factory=dict)

    def located(self, base_dir: Path) -> Self:
        """This arm with the files that its acceptance names taken from `base_dir`."""
        if self.acceptance is None:
            return self
        classes = {name: model.located(base_dir) for name, model in self.class_acceptance.items()}
        return self.model_copy(update={"acceptance": self.acceptance.located(base_dir), "class_acceptance": classes})

    @property
    def rule(self) -> DraftLength:
        """The K rule in force."""
        return self.draft_length or self.speculative_config.draft_length

    @property
    def speculates(self) -> bool:
        """Whether this arm drafts anything."""
        return self.speculative_config.max_draft_tokens > 0
