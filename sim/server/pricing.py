"""Seconds from the cost model and the drafter -> integer nanoseconds of one engine step."""

from typing import NamedTuple

from sim.cost.base import BoundCost, ForwardPass, PassPrice
from sim.speculation.base import Drafter, DraftWork


class StepCost(NamedTuple):
    """Duration of one engine step in integer nanoseconds, and the price of its target pass."""

    total_ns: int
    draft_ns: int
    target_ns: int
    host_ns: int
    price: PassPrice


class StepPricer:
    """Prices steps of one arm.

    Attributes:
        host_is_remainder: the host time is what sticks out beside the GPU in any case.
    """

    def __init__(self, cost: BoundCost, drafter: Drafter) -> None:
        self.host_is_remainder = cost.host.is_remainder
        self._target_price, self._draft_seconds = cost.target.price, drafter.draft_seconds
        self._host_base_s, self._host_per_request_s = cost.host.base_s, cost.host.per_request_s

    def price(self, forward: ForwardPass, drafting_seqs: int, drafting_kv: int, k_next: int) -> StepCost:
        """Cost of the target pass, of drafting K = `k_next` tokens after it, and of the host; at least 1 ns."""
        price = self._target_price(forward)
        target_ns = round(price.seconds * 1e9)
        draft_ns = round(self._draft_seconds(DraftWork(forward, drafting_seqs, drafting_kv, k_next)) * 1e9)
        host_ns = round((self._host_base_s + self._host_per_request_s * forward.num_seqs) * 1e9)
        return StepCost(max(1, target_ns + draft_ns + host_ns), draft_ns, target_ns, host_ns, price)
