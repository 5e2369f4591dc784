"""The K of the highest goodput at this batch size, acceptance re-estimated on line: vLLM's dynamic manager.

`v1/spec_decode/dynamic/manager.py` as proposed in pull request 32374: K* = argmax over K of (1 + s_1 + ... + s_K) /
ITL(B, K), ties to the smaller K. ITL was measured off line at some batch sizes and K and is interpolated linearly,
first over batch sizes, then over K. The rates s_i come from an off-line profile, and after 10 steps from all drafts
so far: accepted at position i / drafted with at least i tokens. A position never drafted counts as rate 0, as there:
once K has gone down for every batch size, the deeper positions keep what they had.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.draft_length.base import DRAFT_LENGTH, Choice, Floats, Load, Outcome, Rule, Setting, StoppingDraftLength
from sim.spec import Seq
from sim.units import PositiveCount, Probability

Positions = Annotated[Seq[Probability], Field(min_length=1)]


@DRAFT_LENGTH.register
class Goodput(StoppingDraftLength):
    """The K with the most tokens per second at the present batch size (vLLM's dynamic manager).

    Attributes:
        batch_sizes: where step times were measured; larger batches count as the last. Null: powers of 2 up to
            `max_num_seqs`.
        ks: K at which they were measured; null: every one. 0 and the largest are always among them.
        context_tokens: context of every request in that measurement.
        acceptance_rate_per_pos: s_1, s_2, ... of the off-line profile; null: those of the arm's acceptance.
        warmup_steps: steps before the rates are estimated on line.
        online: estimate the rates on line; false keeps the profile.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "goodput"},
                {"kind": "goodput", "batch_sizes": [1, 4, 16, 64], "ks": [0, 1, 3], "context_tokens": 2000},
            ]
        }
    )

    kind: Literal["goodput"] = "goodput"
    batch_sizes: Annotated[Seq[PositiveCount], Field(min_length=1)] | None = None
    ks: Annotated[Seq[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    context_tokens: PositiveCount = 1000
    acceptance_rate_per_pos: Positions | None = None
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    online: bool = True

    @model_validator(mode="after")
    def _rising(self) -> "Goodput":
        for name in ("batch_sizes", "ks"):
            values = list(getattr(self, name) or ())
            if values != sorted(set(values)):
                raise ValueError(f"{name} must rise; found {values}")
        return self

    def wrong_for(self, max_draft_tokens: int) -> str:
        """K beyond the largest, or rates for fewer."""
        if self.ks and self.ks[-1] > max_draft_tokens:
            return f"ks: {self.ks[-1]}; allowed: at most num_speculative_tokens = {max_draft_tokens}"
        rates = self.acceptance_rate_per_pos
        if rates is not None and len(rates) < max_draft_tokens:
            return f"acceptance_rate_per_pos: {len(rates)} rates for num_speculative_tokens = {max_draft_tokens}"
        return ""

    @property
    def needs_chain(self) -> bool:
        """Rates are by position."""
        return True

    def bind(self, setting: Setting) -> Rule:
        """Measure the step times and take the profile's rates."""
        k = setting.max_draft_tokens
        sizes = self.batch_sizes or _powers(setting.max_num_seqs)
        ks = sorted({0, *(self.ks or range(k + 1)), k})
        measured = [[setting.step_seconds(n, n * self.context_tokens, n * j, j) for j in ks] for n in sizes]
        rates = setting.survival(k) if self.acceptance_rate_per_pos is None else self.acceptance_rate_per_pos[:k]
        warmup = self.warmup_steps if self.online else None
        return GoodputRule(sizes, ks, np.array(measured), np.asarray(rates, np.float64), warmup)


def _powers(most: int) -> list[int]:
    return sorted({2**i for i in range(most.bit_length())} | {most})


class GoodputRule(Rule):
    """Step times by batch size and K, and the rates by position.

    Args:
        batch_sizes: (B,) rising.
        ks: rising from 0 to the largest K.
        seconds: (B, len(ks)) measured step times.
        rates: (K,) s_1, s_2, ...
        warmup: steps before the rates are estimated; None: never.
    """

    def __init__(
        self, batch_sizes: Sequence[int], ks: Sequence[int], seconds: Floats, rates: Floats, warmup: int | None
    ) -> None:
        self._sizes = np.asarray(batch_sizes, np.float64)
        every = np.arange(ks[-1] + 1)
        self._seconds = np.array([np.interp(every, ks, row) for row in seconds])
        self._rates, self._warmup, self._steps = rates, warmup, 0
        self._drafted, self._accepted = np.zeros(len(rates)), np.zeros(len(rates))
        self._best: dict[int, int] = {}

    def observe(self, outcome: Outcome) -> None:
        """Count drafts by position; past the warm-up the counts are the rates."""
        self._steps += 1
        depth = np.arange(1, len(self._rates) + 1)[:, None]
        self._drafted += (outcome.drafts >= depth).sum(axis=1)
        self._accepted += (outcome.accepted >= depth).sum(axis=1)
        if self._warmup is not None and self._steps > self._warmup and self._drafted[0]:
            self._rates = self._accepted / np.maximum(self._drafted, 1)
            self._best.clear()

    def choose(self, load: Load) -> Choice:
        """K* of this batch size."""
        return Choice(self.best(max(1, load.num_seqs)))

    def best(self, num_seqs: int) -> int:
        """K of the highest goodput; the smallest of equals."""
        if num_seqs not in self._best:
            tokens = 1.0 + np.concatenate(([0.0], np.cumsum(self._rates)))
            self._best[num_seqs] = int(np.argmax(tokens / self._itl(num_seqs)))
        return self._best[num_seqs]

    def _itl(self, num_seqs: int) -> Floats:
        """(K+1,) step times at this batch size."""
        high = int(np.searchsorted(self._sizes, num_seqs))
        if high == 0 or high == len(self._sizes):
            row: Floats = self._seconds[min(high, len(self._sizes) - 1)]
            return row
        low, top = self._sizes[high - 1], self._sizes[high]
        share = (num_seqs - low) / (top - low)
        between: Floats = self._seconds[high - 1] + share * (self._seconds[high] - self._seconds[high - 1])
        return between
