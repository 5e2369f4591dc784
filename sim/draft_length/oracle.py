"""Knows what will be accepted and what steps cost: the bound that other rules are measured by.

For every K it counts the tokens that the next step would emit (from the acceptance tape, cut at the end of outputs)
and prices that step as a decode step of the requests that go on. It takes the K of the most tokens per second; ties
go to the smaller K. With `per_request`, each request drafts exactly what will be accepted of it, up to the best
common limit.

It is the best choice for the next step alone, and does not foresee admissions. Over a whole run a rule can therefore
still be ahead by a little; experiments measure by how much.
"""

from typing import Literal

import numpy as np
from pydantic import ConfigDict

from sim.draft_length.base import DRAFT_LENGTH, AtZero, Choice, DraftLength, Ints, Load, Rule, Setting, Switching


@DRAFT_LENGTH.register
class Oracle(DraftLength):
    """The best K for the next step, given what will be accepted and what it costs: no engine can have it.

    Attributes:
        per_request: let every request draft just what will be accepted of it.
        at_zero: as in `batch_table`; give it that of the rules it is compared with. It switches for free.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "oracle"}]})

    kind: Literal["oracle"] = "oracle"
    per_request: bool = False
    at_zero: AtZero = "first_pass"

    @property
    def switching(self) -> Switching:
        """Free but for a drafter that stops."""
        return Switching(drafter_stops=self.at_zero == "stop")

    @property
    def needs_chain(self) -> bool:
        """Drafts of one request can be left out one by one in a chain only."""
        return self.per_request

    def bind(self, setting: Setting) -> Rule:
        """With the future at hand."""
        return OracleRule(setting, self.per_request)


class OracleRule(Rule):
    """Tries every K."""

    def __init__(self, setting: Setting, per_request: bool) -> None:
        self._setting, self._per_request = setting, per_request

    def choose(self, load: Load) -> Choice:
        """The K, or the drafts per request, of the most tokens per second."""
        going_on = np.flatnonzero(load.left > 0)
        best, rate = Choice(0), -1.0
        if not len(going_on):
            return best
        for k in range(self._setting.max_draft_tokens + 1):
            drafts = self._drafts(load, going_on, k)
            tokens = self._tokens(load, going_on, drafts)
            kv_tokens = int(load.kv_tokens[going_on].sum())
            passes = int(drafts.max()) if self._per_request else k
            seconds = self._setting.step_seconds(len(going_on), kv_tokens, int(drafts.sum()), passes)
            if tokens / seconds > rate:
                best, rate = Choice(self._spread(load, going_on, drafts) if self._per_request else k), tokens / seconds
        return best

    def _drafts(self, load: Load, going_on: Ints, k: int) -> Ints:
        """Drafts that the requests which go on would verify under a limit of k."""
        cursor = load.cursor[going_on]
        drafts = self._setting.verified(cursor, k) * load.speculates[going_on]
        if not self._per_request:
            return drafts
        useful = np.minimum(self._setting.taken(cursor, drafts), load.left[going_on] - 1)
        return np.maximum(useful, 0)

    def _tokens(self, load: Load, going_on: Ints, drafts: Ints) -> int:
        emitted = self._setting.taken(load.cursor[going_on], drafts) + 1
        return int(np.minimum(emitted, load.left[going_on]).sum())

    @staticmethod
    def _spread(load: Load, going_on: Ints, drafts: Ints) -> Ints:
        spread = np.zeros(len(load.rows), np.int64)
        spread[going_on] = drafts
        return spread
