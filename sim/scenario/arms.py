"""`arms:` of a scenario: one way of decoding each, all run on the same requests."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel
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
        acceptance: how many drafts are accepted; required when the arm speculates, never assumed.
        class_acceptance: other acceptance for some traffic classes, by class name.
    """

    speculative_config: SpeculativeConfig = Field(default_factory=Plain)
    acceptance: Annotated[AcceptanceModel, ACCEPTANCE] | None = None
    class_acceptance: dict[str, Annotated[AcceptanceModel, ACCEPTANCE]] = Field(default_factory=dict)

    @property
    def speculates(self) -> bool:
        """Whether this arm drafts anything."""
        return self.speculative_config.max_draft_tokens > 0
