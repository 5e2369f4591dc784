"""The same K in every step."""

from typing import Literal

from pydantic import ConfigDict

from sim.draft_length.base import DRAFT_LENGTH, DraftLength, Rule, Setting, TableRule


@DRAFT_LENGTH.register
class Fixed(DraftLength):
    """`num_speculative_tokens` in every step, whatever the batch: the rule of an arm that states none."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "fixed"}]})

    kind: Literal["fixed"] = "fixed"

    def bind(self, setting: Setting) -> Rule:
        """K = the largest K."""
        return TableRule.fixed(setting.max_draft_tokens)

    def table(self, max_draft_tokens: int) -> TableRule:
        """One range."""
        return TableRule.fixed(max_draft_tokens)
