"""Several servers behind a router: to arrivals they are one server."""

from collections.abc import Sequence

import simpy

from sim.routing.base import Load, RoutingPolicy
from sim.server.server import Server
from sim.workload.requests import RequestTable

_UNWATCHED = Load(0, 0)


class Router:
    """Hands every request to one of several replicas of a server, at once and for good.

    Args:
        servers: the replicas, all over the same clock and requests.
        policy: who gets what.
        table: the requests.
    """

    def __init__(self, servers: Sequence[Server], policy: RoutingPolicy, table: RequestTable) -> None:
        self._servers, self._watches = servers, policy.watches
        self._chooser = policy.bind(len(servers), table)
        self._outstanding = [0] * len(servers)

    def submit(self, row: int) -> simpy.Event:
        """As `Server.submit`."""
        chosen = self._choose(row)
        done = self._servers[chosen].submit(row)
        if self._watches:
            self._outstanding[chosen] += 1
            done.callbacks.append(lambda _: self._answered(chosen))
        return done

    def post(self, row: int) -> None:
        """As `Server.post`; a router that watches its replicas waits for the end of each request itself."""
        if self._watches:
            self.submit(row)
        else:
            self._servers[self._choose(row)].post(row)

    def _choose(self, row: int) -> int:
        if not self._watches:
            return self._chooser.choose(row, [_UNWATCHED] * len(self._servers))
        counts = zip(self._outstanding, self._servers, strict=True)
        return self._chooser.choose(row, [Load(count, server.num_waiting) for count, server in counts])

    def _answered(self, replica: int) -> None:
        self._outstanding[replica] -= 1
