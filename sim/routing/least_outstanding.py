"""`least_outstanding`: to the replica with the fewest unanswered requests."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict

from sim.routing.base import ROUTERS, Chooser, Load, LowestInTurn, RoutingPolicy
from sim.workload.requests import RequestTable


@ROUTERS.register
class LeastOutstanding(RoutingPolicy):
    """The replica with the fewest requests sent and not yet answered; equals take turns."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "least_outstanding"}]})

    kind: Literal["least_outstanding"] = "least_outstanding"

    def bind(self, num_replicas: int, table: RequestTable) -> Chooser:
        """Starts with the first replica."""
        return _Fewest()


class _Fewest(LowestInTurn):
    def choose(self, row: int, loads: Sequence[Load]) -> int:
        return self.lowest([load.outstanding for load in loads])
