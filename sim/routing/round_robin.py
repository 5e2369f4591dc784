"""`round_robin`: one replica after the other."""

from collections.abc import Sequence
from itertools import cycle
from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.routing.base import ROUTERS, Chooser, Load, RoutingPolicy
from sim.workload.requests import RequestTable


@ROUTERS.register
class RoundRobin(RoutingPolicy):
    """Request i goes to replica i mod N, whatever the replicas do."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "round_robin"}]})

    kind: Literal["round_robin"] = "round_robin"

    watches: ClassVar[bool] = False

    def bind(self, num_replicas: int, table: RequestTable) -> Chooser:
        """Starts with the first replica."""
        return _Turns(num_replicas)


class _Turns:
    def __init__(self, num_replicas: int) -> None:
        self._turns = cycle(range(num_replicas))

    def choose(self, row: int, loads: Sequence[Load]) -> int:
        return next(self._turns)
