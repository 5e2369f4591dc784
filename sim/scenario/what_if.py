"""What if the inputs were wrong: factors on times, acceptance and lengths, all 1 where they are taken as they are."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from sim.acceptance.base import NEVER, Counts, Floats, Tape
from sim.acceptance.context_decay import until_next
from sim.cost.base import BoundCost, ForwardPass, HostOverhead, PassCost, PassPrice
from sim.rng import Streams
from sim.spec import Spec
from sim.speculation.base import Drafter, DraftWork
from sim.workload.lengths.base import MAX_TOKENS, whole_tokens
from sim.workload.requests import Ints, RequestTable

Factor = Annotated[float, Field(gt=0, le=100)]


class WhatIf(Spec):
    """Factors on what a simulation takes for granted, for sensitivity studies.

    Attributes:
        target_time: on all target passes, plain and speculative.
        verify_time: on target passes that verify drafts, on top of `target_time`.
        draft_time: on all drafting.
        host_time: on the engine's CPU time per step.
        acceptance: on the probability that a draft is accepted when those before it were. Below 1 each position of the
            text refuses a share of the drafts accepted there; above 1 it accepts a share of the refused ones.
        prompt_tokens, output_tokens: on the lengths of every request, rounded, at least 1.
    """

    target_time: Factor = 1.0
    verify_time: Factor = 1.0
    draft_time: Factor = 1.0
    host_time: Factor = 1.0
    acceptance: Factor = 1.0
    prompt_tokens: Factor = 1.0
    output_tokens: Factor = 1.0

    def requests(self, requests: RequestTable) -> RequestTable:
        """The requests with the factors on lengths applied."""
        if (self.prompt_tokens, self.output_tokens) == (1.0, 1.0):
            return requests
        return replace(
            requests,
            prompt_tokens=_scaled(requests.prompt_tokens, self.prompt_tokens),
            output_tokens=_scaled(requests.output_tokens, self.output_tokens),
        )

    def cost(self, cost: BoundCost) -> BoundCost:
        """The prices with the factors on times applied."""
        if (self.target_time, self.verify_time, self.host_time) == (1.0, 1.0, 1.0):
            return cost
        host = cost.host
        return replace(
            cost,
            target=ScaledCost(cost.target, self.target_time, self.target_time * self.verify_time),
            host=HostOverhead(host.base_s * self.host_time, host.per_request_s * self.host_time, host.is_remainder),
        )

    def drafter(self, drafter: Drafter) -> Drafter:
        """The drafter with the factor on its time applied."""
        return drafter if self.draft_time == 1.0 else ScaledDrafter(drafter, self.draft_time)

    def tape(self, tape: Tape, survival: Floats, requests: RequestTable, streams: Streams) -> Tape:
        """The tape with the factor on acceptance applied, keyed by text position like the tape itself.

        Args:
            tape: as the acceptance model drew it.
            survival: the acceptance model's, shape (K,): tells how many refusals to turn over for a factor above 1.
            requests: the rows.
            streams: the replicate's random numbers.
        """
        if self.acceptance == 1.0:
            return tape
        uniforms = streams.per_position("what-if/acceptance", requests.output_tokens)
        if self.acceptance < 1.0:
            return tape.shortened(until_next(uniforms >= self.acceptance, requests))

        def changed(accepted: Counts, limit: int) -> Counts:
            return _extended(accepted, uniforms < _rescue(survival, self.acceptance), requests, limit)

        accepted = changed(tape.accepted, len(survival))
        if tape.proposed is not None:
            accepted = np.minimum(accepted, tape.proposed)
        by_k = {k: changed(each, min(k, len(survival))) for k, each in tape.by_k.items()}
        reach = None if tape.reach is None else _reached(tape.reach, accepted)
        return replace(tape, accepted=accepted, by_k=by_k, reach=reach)

    def survival(self, survival: Floats) -> Floats:
        """The unconditional rates with the factor on acceptance applied; approximate above 1."""
        if self.acceptance == 1.0 or not len(survival):
            return survival
        if self.acceptance < 1.0:
            return np.asarray(survival * self.acceptance ** np.arange(1, len(survival) + 1))
        before = np.concatenate(([1.0], survival[:-1]))
        rates = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0)
        return np.asarray(np.cumprod(rates + (1.0 - rates) * _rescue(survival, self.acceptance)))


#: A scenario without a `what_if` section.
AS_STATED = WhatIf()


@dataclass(frozen=True, slots=True)
class ScaledDrafter:
    """A drafter that takes `factor` times as long."""

    drafting: Drafter
    factor: float

    def draft_seconds(self, work: DraftWork) -> float:
        """The drafter's time, scaled."""
        return self.factor * self.drafting.draft_seconds(work)


@dataclass(frozen=True, slots=True)
class ScaledCost:
    """Prices times a factor; another one for passes that verify drafts."""

    cost: PassCost
    factor: float
    verify_factor: float

    def price(self, forward: ForwardPass) -> PassPrice:
        """The price with all its parts scaled."""
        price = self.cost.price(forward)
        f = self.verify_factor if forward.num_draft_tokens else self.factor
        seconds, linear, attention, lm_head, collective, fixed, bound, outside = price
        return PassPrice(seconds * f, linear * f, attention * f, lm_head * f, collective * f, fixed * f, bound, outside)


def _scaled(tokens: Ints, factor: float) -> Ints:
    return whole_tokens(tokens * np.float64(factor), 1, MAX_TOKENS)


def _rescue(survival: Floats, factor: float) -> float:
    """Share of refused drafts to accept so that the mean conditional rate grows by `factor`; at most all of them."""
    reached = float(1.0 + survival[:-1].sum())
    rate = float(survival.sum()) / reached
    return min(1.0, (min(1.0, factor * rate) - rate) / (1.0 - rate)) if rate < 1.0 else 0.0


def _extended(
    accepted: Counts, rescues: np.ndarray[tuple[int], np.dtype[np.bool_]], requests: RequestTable, limit: int
) -> Counts:
    """A run goes on past a refused draft that is now accepted, with the run that starts behind it."""
    end = np.repeat(requests.output_offset + requests.output_tokens, requests.output_tokens)
    places = np.arange(len(accepted))
    longer = accepted.astype(np.int64)
    for _ in range(limit):
        refused = np.minimum(places + longer, len(accepted) - 1)
        goes_on = (longer < limit) & (places + longer < end) & rescues[refused]
        if not goes_on.any():
            break
        behind = np.minimum(refused + 1, len(accepted) - 1)
        further = 1 + np.where(refused + 1 < end, accepted[behind], 0)
        longer = np.where(goes_on, np.minimum(longer + further, limit), longer)
    return longer.astype(np.uint8)


def _reached(reach: Counts, accepted: Counts) -> Counts:
    """Nodes of trees to verify when so many drafts are accepted; a rescued draft may be any of them: the last one."""
    depths = np.arange(reach.shape[1])
    last = max(int(reach[reach != NEVER].max(initial=0)), len(depths))
    kept = depths < accepted[:, None]
    return np.where(kept, np.where(reach == NEVER, last, reach), NEVER).astype(np.uint8)
