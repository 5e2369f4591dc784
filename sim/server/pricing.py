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
        last_step_ns: duration of the step priced last.
    """

    def __init__(self, cost: BoundCost, drafter: Drafter) -> None:
        self._target, self._host, self._drafter = cost.target, cost.host, drafter
        self.last_step_ns = 1

    def price(self, forward: ForwardPass, drafting_seqs: int, drafting_kv: int, k_next: int) -> StepCost:
        """Cost of the target pass, of drafting K = `k_next` tokens after it, and of the host; at least 1 ns."""
        price = self._target.price(forward)
        target_ns = round(price.seconds * 1e9)
        draft_ns = round(self._drafter.draft_seconds(DraftWork(forward, drafting_seqs, drafting_kv, k_next)) * 1e9)
        host_ns = round(self._host.seconds(forward.num_seqs) * 1e9)
        self.last_step_ns = max(1, target_ns + draft_ns + host_ns)
        return StepCost(self.last_step_ns, draft_ns, target_ns, host_ns, price)
