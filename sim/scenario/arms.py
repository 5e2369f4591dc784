"""`arms:` of a scenario: one way of decoding each, all run on the same requests."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel
from sim.draft_length.base import DRAFT_LENGTH, DraftLength
from sim.spec import Spec
from sim.speculation.base import SPECULATION, SpeculationMethod
from sim.speculation.plain import Plain
from sim.verification.base import VERIFICATION, VerificationRule
from sim.verification.greedy_draft import GreedyDraft


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
        verification: the rule that keeps or rejects drafts; null: `greedy_draft`, which at temperature 0 is
            `greedy_match`. It says whether the output stays the target's, and decides the acceptance of kind
            `distributions`; all other acceptance counts as measured under it.
    """

    speculative_config: SpeculativeConfig = Field(default_factory=Plain)
    draft_length: Annotated[DraftLength, DRAFT_LENGTH] | None = None
    acceptance: Annotated[AcceptanceModel, ACCEPTANCE] | None = None
    class_acceptance: dict[str, Annotated[AcceptanceModel, ACCEPTANCE]] = Field(default_factory=dict)
    verification: Annotated[VerificationRule, VERIFICATION] | None = None

    def located(self, base_dir: Path) -> Self:
        """This arm with its files taken from `base_dir`, and its acceptance judged by its rule.

        What its method drafts from tokens is what computed acceptance rests on.

        Raises:
            ScenarioError: the acceptance has to be computed from tokens, and the method does not draft from them.
        """
        method = self.speculative_config.located(base_dir)

        def bound(model: AcceptanceModel) -> AcceptanceModel:
            return model.located(base_dir).under(self.rule).drafted_by(method.proposer)

        classes = {name: bound(model) for name, model in self.class_acceptance.items()}
        acceptance = None if self.acceptance is None else bound(self.acceptance)
        update = {"speculative_config": method, "acceptance": acceptance, "class_acceptance": classes}
        return self.model_copy(update=update)

    @property
    def rule(self) -> VerificationRule:
        """The verification rule, default filled in; of no meaning for an arm that does not speculate."""
        return self.verification or GreedyDraft()

    @property
    def lossless(self) -> bool:
        """Whether the output is distributed as without speculation."""
        return self.rule.lossless or not self.speculates

    @property
    def k_rule(self) -> DraftLength:
        """The K rule in force."""
        return self.draft_length or self.speculative_config.draft_length

    @property
    def speculates(self) -> bool:
        """Whether this arm drafts anything."""
        return self.speculative_config.max_draft_tokens > 0
