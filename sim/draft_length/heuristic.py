"""Two more after a full success, one less otherwise: Hugging Face's heuristic schedule, per request.

`transformers/generation/candidate_generator.py`, `update_candidate_strategy`: when all drafts of a step were accepted
the next step drafts 2 more, else max(1, one less). Hugging Face generates at batch size 1; here each request has its
own K, which starts afresh (`heuristic_transient`) and never exceeds `num_speculative_tokens`.
"""

from typing import Literal

import numpy as np
from pydantic import ConfigDict

from sim.draft_length.base import DRAFT_LENGTH, ChangingDraftLength, Choice, Load, Outcome, Rule, Setting
from sim.units import PositiveCount


@DRAFT_LENGTH.register
class Heuristic(ChangingDraftLength):
    """K per request: +2 when all its drafts were accepted, else -1, at least 1 (Hugging Face `heuristic_transient`).

    Attributes:
        num_assistant_tokens: where every request starts; null: `num_speculative_tokens`.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "heuristic", "num_assistant_tokens": 5}]})

    kind: Literal["heuristic"] = "heuristic"
    num_assistant_tokens: PositiveCount | None = None

    @property
    def needs_chain(self) -> bool:
        """Full success means nothing in a tree."""
        return True

    def wrong_for(self, max_draft_tokens: int) -> str:
        """A start above the largest K."""
        if (self.num_assistant_tokens or 0) <= max_draft_tokens:
            return ""
        return (
            f"num_assistant_tokens = {self.num_assistant_tokens}; allowed: at most num_speculative_tokens = "
            f"{max_draft_tokens}"
        )

    def bind(self, setting: Setting) -> Rule:
        """All requests at the start."""
        k = setting.max_draft_tokens
        return HeuristicRule(self.num_assistant_tokens or k, k, setting.num_requests)


class HeuristicRule(Rule):
    """K by request table row."""

    def __init__(self, start: int, most: int, num_requests: int) -> None:
        self._k, self._most = np.full(num_requests, start), most

    def observe(self, outcome: Outcome) -> None:
        """Requests that verified drafts move on."""
        verified = outcome.drafts > 0
        rows = outcome.rows[verified]
        all_accepted = outcome.accepted[verified] == outcome.drafts[verified]
        self._k[rows] = np.clip(self._k[rows] + np.where(all_accepted, 2, -1), 1, self._most)

    def choose(self, load: Load) -> Choice:
        """Each request's own K."""
        return Choice(self._k[load.rows])
