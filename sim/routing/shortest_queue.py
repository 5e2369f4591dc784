"""`shortest_queue`: what vLLM's data-parallel front end does."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict

from sim.routing.base import ROUTERS, Chooser, Load, LowestInTurn, RoutingPolicy
from sim.workload.requests import RequestTable

#: vLLM `DPLBAsyncMPClient.get_core_engine_for_request`: score = waiting * 4 + running.
WAITING_WEIGHT = 4


@ROUTERS.register
class ShortestQueue(RoutingPolicy):
    """The replica with the lowest 4 x waiting + running, as vLLM balances its data-parallel ranks; equals take turns.

    vLLM knows the counts as of the last 100 ms, here they are exact.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "shortest_queue"}]})

    kind: Literal["shortest_queue"] = "shortest_queue"

    def bind(self, num_replicas: int, table: RequestTable) -> Chooser:
        """Starts with the first replica."""
        return _Shortest()


class _Shortest(LowestInTurn):
    def choose(self, row: int, loads: Sequence[Load]) -> int:
        return self.lowest([load.outstanding + (WAITING_WEIGHT - 1) * load.waiting for load in loads])
