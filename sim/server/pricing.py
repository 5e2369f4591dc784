"""Seconds from the cost model and the drafter -> integer nanoseconds of one engine step."""

from typing import NamedTuple

from sim.cost.base import BoundCost, ForwardPass, PassPrice
from sim.draft_length.base import NO_SWITCHING, Switching
from sim.speculation.base import Drafter, DraftWork


class StepCost(NamedTuple):
    """Duration of one engine step in integer nanoseconds, and the price of its target pass."""

    total_ns: int
    draft_ns: int
    target_ns: int
    host_ns: int
    price: PassPrice


class StepPricer:
    """Prices the steps of one arm, each once and in order: it remembers the K of the step before.

    Attributes:
        host_is_remainder: the host time is what sticks out beside the GPU in any case.
    """

    def __init__(self, cost: BoundCost, drafter: Drafter, switching: Switching = NO_SWITCHING) -> None:
        self.host_is_remainder = cost.host.is_remainder
        self._target_price, self._draft_seconds = cost.target.price, drafter.draft_seconds
        self._host_base_s, self._host_per_request_s = cost.host.base_s, cost.host.per_request_s
        self._switching, self._last_k = switching, -1
        self._changes_k, self._drafter_stops = switching != NO_SWITCHING, switching.drafter_stops

    def price(self, work: DraftWork) -> StepCost:
        """Cost of the target pass, of drafting after it, and of the host; at least 1 ns."""
        forward = work.target
        price, host_s = self._target_price(forward), 0.0
        if self._changes_k:
            price, host_s = self._slowed(forward, price), self._switch_s(work.num_draft_tokens)
        target_ns = round(price.seconds * 1e9)
        stopped = self._drafter_stops and not work.num_draft_tokens
        draft_ns = 0 if stopped else round(self._draft_seconds(work) * 1e9)
        host_s += self._host_base_s + self._host_per_request_s * forward.num_seqs
        host_ns = round(host_s * 1e9)
        return StepCost(max(1, target_ns + draft_ns + host_ns), draft_ns, target_ns, host_ns, price)

    def _slowed(self, forward: ForwardPass, price: PassPrice) -> PassPrice:
        """Without full CUDA graphs: passes with prefill never have them, and long kernels hide the launches."""
        only_decodes = forward.num_tokens == forward.num_seqs + forward.num_draft_tokens
        if not (self._switching.cudagraph_slowdown and price.memory_bound and only_decodes):
            return price
        more = price.seconds * self._switching.cudagraph_slowdown
        return price._replace(seconds=price.seconds + more, fixed=price.fixed + more)

    def _switch_s(self, k: int) -> float:
        changed = self._last_k not in (-1, k)
        self._last_k = k
        return self._switching.switch_s if changed else 0.0
