"""Drafts go where they raise the batch's goodput: after SmartSpec (arXiv 2406.14066), per request.

Goodput = expected tokens of the step / its predicted time. As in the paper (sections 4.1, 4.2): a request's
acceptance rate alpha is a moving average over its steps, k drafts give (1 - alpha^(k+1)) / (1 - alpha) tokens, and
the step time is linear, T = a N_context + b N_batched + c, here plus d per drafter pass, fitted off line by least
squares. The search is
ours: for every number of passes the drafts of highest expected gain join as long as goodput rises. That is the best set
of prefixes, since a request's gains alpha, alpha^2, ... fall with depth and the time depends on their number only.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.draft_length.base import DRAFT_LENGTH, Choice, Floats, Ints, Load, Outcome, Rule, Setting, StoppingDraftLength


@DRAFT_LENGTH.register
class SmartSpec(StoppingDraftLength):
    """K per request that maximises the predicted goodput of the batch (SmartSpec-like, arXiv 2406.14066).

    Attributes:
        weight: of a new step in the moving average of a request's acceptance rate.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "smart_spec"}]})

    kind: Literal["smart_spec"] = "smart_spec"
    weight: Annotated[float, Field(gt=0, le=1)] = 0.1

    @property
    def needs_chain(self) -> bool:
        """Rates are by position."""
        return True

    def bind(self, setting: Setting) -> Rule:
        """Fit the step time, and start every request at the mean acceptance rate."""
        survival = setting.survival(setting.max_draft_tokens)
        alpha = float(survival.sum() / (1.0 + survival[:-1].sum()))  # accepted / judged drafts
        return SmartSpecRule(fit_step_time(setting), alpha, self.weight, setting.max_draft_tokens, setting.num_requests)


def fit_step_time(setting: Setting) -> Floats:
    """(a, b, c, d) of T = a N_context + b N_batched + c + d passes, relative errors least over a grid of steps."""
    rows, seconds, k = list[tuple[float, ...]](), list[float](), setting.max_draft_tokens
    for batch in sorted({1, setting.max_num_seqs, *(2**i for i in range(setting.max_num_seqs.bit_length()))}):
        for context in (250, 1000, 4000):
            for drafts in sorted({0, 1, (k + 1) // 2, k}):
                rows.append((batch * context, batch * (1 + drafts), 1.0, drafts))
                seconds.append(setting.step_seconds(batch, batch * context, batch * drafts, drafts))
    times = np.array(seconds)
    fitted: Floats = np.linalg.lstsq(np.array(rows) / times[:, None], np.ones(len(times)), rcond=None)[0]
    return fitted


class SmartSpecRule(Rule):
    """Acceptance rates by request table row, and the fitted step time."""

    def __init__(self, time: Floats, alpha: float, weight: float, most: int, num_requests: int) -> None:
        self._time, self._weight, self._most = time, weight, most
        self._alpha = np.full(num_requests, alpha)

    def observe(self, outcome: Outcome) -> None:
        """Judged drafts of a request: the accepted ones, and the rejection that ended the step if there was one."""
        judged = np.minimum(outcome.accepted + 1, outcome.drafts)
        verified = judged > 0
        rows = outcome.rows[verified]
        rate = outcome.accepted[verified] / judged[verified]
        self._alpha[rows] += self._weight * (rate - self._alpha[rows])

    def choose(self, load: Load) -> Choice:
        """Drafts per request."""
        wanted = (load.speculates > 0) & (load.left > 0)
        n, drafting = int((load.left > 0).sum()), np.flatnonzero(wanted)
        drafts = np.zeros(len(load.rows), np.int64)
        if len(drafting):
            gains: Floats = self._alpha[load.rows[drafting], None] ** np.arange(1, self._most + 1)
            drafts[drafting] = self._best(gains, n, int(load.kv_tokens[load.left > 0].sum()))
        return Choice(drafts)

    def _best(self, gains: Floats, num_seqs: int, kv_tokens: int) -> Ints:
        """(n,) drafts per request, from the (n, K) chance that each draft is accepted."""
        context, batched, fixed, per_pass = self._time
        start = context * kv_tokens + batched * num_seqs + fixed
        best, goodput = np.zeros(len(gains), np.int64), num_seqs / max(start, 1e-9)
        for passes in range(1, self._most + 1):
            order = np.argsort(-gains[:, :passes], axis=None, kind="stable")
            tokens = num_seqs + np.cumsum(gains[:, :passes].ravel()[order])
            seconds = start + per_pass * passes + batched * np.arange(1, len(order) + 1)
            rates = tokens / np.maximum(seconds, 1e-9)
            last = int(np.argmax(rates))
            if rates[last] > goodput:
                goodput = float(rates[last])
                best = np.bincount(order[: last + 1] // passes, minlength=len(gains))
        return best
