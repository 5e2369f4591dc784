"""Writes down what happens, as cheaply as possible: a few appends per step and two scatters per emission."""

import numpy as np
from numpy.typing import NDArray

from sim.scheduler.plan import StepFacts
from sim.scheduler.walker import Walker
from sim.server.pricing import StepCost
from sim.workload.requests import RequestTable

Ints = NDArray[np.int64]


class Ledger:
    """Columns by request and output position; each request is written by the one server that it was sent to.

    Attributes:
        table: the requests of the run.
        replica: (N,) server of each request; 0 before it arrives.
        arrival, first_scheduled: (N,) nanoseconds, -1 before.
        emission_step: (T,) as in `RunRecord`, but counting the steps of the request's own server.
        drafted: (T,) as in `RunRecord`.
    """

    def __init__(self, table: RequestTable) -> None:
        self.table = table
        self.replica = np.zeros(len(table), np.int64)
        self.arrival = np.full(len(table), -1, np.int64)
        self.first_scheduled = np.full(len(table), -1, np.int64)
        self.emission_step = np.full(table.num_positions, -1, np.int32)
        self.drafted = np.zeros(table.num_positions, np.uint8)


class Recorder:
    """What one server does: its steps, and its requests' columns in the ledger.

    Args:
        ledger: shared by all servers of the run.
        replica: number of this server.

    Attributes:
        ledger: as given.
        start_ns, cost, facts, blocks: one entry per step.
    """

    def __init__(self, ledger: Ledger, replica: int = 0) -> None:
        self.ledger, self._replica = ledger, replica
        self._first_scheduled, self._emission_step = ledger.first_scheduled, ledger.emission_step
        self._drafted = ledger.drafted
        self.start_ns: list[int] = []
        self.cost: list[StepCost] = []
        self.facts: list[StepFacts] = []
        self.blocks: list[int] = []

    def arrival(self, row: int, now_ns: int) -> None:
        """A request was submitted."""
        self.ledger.arrival[row] = now_ns
        self.ledger.replica[row] = self._replica

    def admitted(self, rows: list[int], now_ns: int) -> None:
        """Requests entered the running list; only the first time counts."""
        for row in rows:
            if self._first_scheduled[row] < 0:
                self._first_scheduled[row] = now_ns

    def step(self, start_ns: int, cost: StepCost, facts: StepFacts, kv_blocks_used: int) -> None:
        """A step is done."""
        self.start_ns.append(start_ns)
        self.cost.append(cost)
        self.facts.append(facts)
        self.blocks.append(kv_blocks_used)

    @property
    def num_steps(self) -> int:
        """Steps recorded so far: the index of the next one."""
        return len(self.start_ns)

    def emissions(self, cursor: Ints, drafts: Ints) -> None:
        """The last step emitted chunks that start at these output positions, after verifying these many drafts."""
        self._emission_step[cursor] = len(self.start_ns) - 1
        self._drafted[cursor] = drafts

    def walked(self, walkers: list[Walker]) -> None:
        """Requests that went through an epoch, up to the last step recorded."""
        for walker in walkers:
            starts = walker.starts[: len(self.start_ns) - walker.first_step]
            self._emission_step[starts] = np.arange(walker.first_step, walker.first_step + len(starts))
            self._drafted[starts] = walker.drafts[: len(starts)]
