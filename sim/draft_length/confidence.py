"""Drafting stops once the drafter is unsure: Hugging Face's confidence threshold, per request.

`transformers/generation/stopping_criteria.py`, `ConfidenceCriteria`: after each drafted token, stop when the
probability that the drafter gave it is below `assistant_confidence_threshold`; that token is still verified. (With
scikit-learn installed, Hugging Face also moves the threshold as it goes; that is left out.)

What probability a drafter gives a token is derived from the arm's acceptance: `sim/acceptance/confidence.py`.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from sim.draft_length.base import DRAFT_LENGTH, ChangingDraftLength, Choice, Load, Rule, Setting

Sharpness = Annotated[float, Field(ge=0, le=1)]


class ConfidenceDraftLength(ChangingDraftLength):
    """A rule that reads the drafter's own probabilities.

    Attributes:
        sharpness: share of the variance of acceptance that the drafter's probability explains: 0 = it says the same of
            every draft of a depth, 1 = it knows. The probability itself is calibrated: of drafts given p, the share p
            is accepted. No default: it belongs to the drafter and has to be measured.
    """

    sharpness: Sharpness

    @property
    def needs_chain(self) -> bool:
        """Confidence is by position."""
        return True

    @property
    def needs_drafts(self) -> bool:
        """Drafting ends by what was drafted."""
        return True


@DRAFT_LENGTH.register
class Confidence(ConfidenceDraftLength):
    """Each request drafts up to K tokens and stops after the first that the drafter is unsure of (Hugging Face).

    Attributes:
        assistant_confidence_threshold: probability below which drafting stops.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "confidence", "sharpness": 0.4}]})

    kind: Literal["confidence"] = "confidence"
    assistant_confidence_threshold: Annotated[float, Field(ge=0, le=1)] = 0.4

    def bind(self, setting: Setting) -> Rule:
        """The look-up of confident drafts."""
        return ConfidenceRule(
            setting.confident(self.assistant_confidence_threshold, self.sharpness), setting.max_draft_tokens
        )


class ConfidenceRule(Rule):
    """The leading confident drafts, and the one after them."""

    def __init__(self, confident: NDArray[np.uint8], most: int) -> None:
        self._confident, self._most = confident, most

    def choose(self, load: Load) -> Choice:
        """The token that ended the draft is verified too."""
        sure = self._confident.take(load.cursor, mode="clip").astype(np.int64)
        return Choice(np.minimum(sure + 1, self._most))
