"""Only drafts that the drafter is sure of: llama.cpp's `--draft-p-min`, `--draft-max` and `--draft-min`, per request.

`common/speculative.cpp`: after each drafter pass the top token is dropped and drafting ends when its probability is
below `p_min`; otherwise it joins the draft, until there are `n_max`. Fewer than `n_min` tokens are thrown away
altogether. The pass that gave the dropped token was run all the same. `num_speculative_tokens` is `--draft-max` (16
in llama.cpp).
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from sim.draft_length.base import DRAFT_LENGTH, Choice, Load, Rule, Setting
from sim.draft_length.confidence import ConfidenceDraftLength


@DRAFT_LENGTH.register
class PMin(ConfidenceDraftLength):
    """Each request verifies the leading drafts that the drafter gives at least `p_min` (llama.cpp).

    Attributes:
        p_min: smallest probability. llama.cpp's default differs between releases (0.9, 0.75, 0), hence none here.
        n_min: fewer drafts than this are thrown away.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "p_min", "p_min": 0.75, "sharpness": 0.4}]})

    kind: Literal["p_min"] = "p_min"
    p_min: Annotated[float, Field(ge=0, le=1)]
    n_min: Annotated[int, Field(ge=0)] = 0

    def wrong_for(self, max_draft_tokens: int) -> str:
        """More drafts needed than there can be."""
        if self.n_min <= max_draft_tokens:
            return ""
        return f"n_min = {self.n_min}; allowed: at most num_speculative_tokens = {max_draft_tokens}"

    def bind(self, setting: Setting) -> Rule:
        """The look-up of confident drafts."""
        return PMinRule(setting.confident(self.p_min, self.sharpness), setting.max_draft_tokens, self.n_min)


class PMinRule(Rule):
    """The leading confident drafts."""

    def __init__(self, confident: NDArray[np.uint8], most: int, least: int) -> None:
        self._confident, self._most, self._least = confident, most, least

    def choose(self, load: Load) -> Choice:
        """One more pass than drafts, unless the draft is as long as it may be."""
        sure = self._confident.take(load.cursor, mode="clip").astype(np.int64)
        return Choice(np.where(sure < self._least, 0, sure), np.minimum(sure + 1, self._most))
