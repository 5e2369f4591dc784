"""Routers in front of several replicas. Contract of this folder; written under `router:`.

A router decides when a request arrives and never again. What it knows of a replica is exact at that moment; real ones
learn it late (vLLM's coordinator publishes counts every 100 ms).
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from sim.spec import Family, Spec
from sim.workload.requests import RequestTable


class Load(NamedTuple):
    """What a router knows of a replica: requests sent there and not yet answered, and how many of them wait."""

    outstanding: int
    waiting: int


class Chooser(Protocol):
    """A router at work."""

    def choose(self, row: int, loads: Sequence[Load]) -> int:
        """The replica of this request.

        Args:
            row: the request that arrives now; each is asked for once.
            loads: of every replica; all zero unless the router `watches`.
        """
        ...


class RoutingPolicy(Spec):
    """How requests are spread over the replicas."""

    kind: str

    #: Whether `choose` looks at loads; following them costs a little time.
    watches: ClassVar[bool] = True

    def bind(self, num_replicas: int, table: RequestTable) -> Chooser:
        """A chooser for one run; it may remember what it did."""
        raise NotImplementedError


ROUTERS: Family[RoutingPolicy] = Family("routers", "sim.routing")


class LowestInTurn:
    """Takes the replica with the lowest score; of equals, the next after the last choice, as nginx's `least_conn`."""

    def __init__(self) -> None:
        self._next = 0

    def lowest(self, scores: Sequence[int]) -> int:
        """Index of the lowest score."""
        num, start = len(scores), self._next
        chosen = min(((start + i) % num for i in range(num)), key=scores.__getitem__)
        self._next = (chosen + 1) % num
        return chosen
