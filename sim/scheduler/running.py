"""The running requests as columns of one array, in order of admission.

Column names follow vLLM's where it has one. `lag` replaces `num_computed_tokens`: lag = known - computed, the tokens
whose KV is still missing, so that decode is lag 1, prefill is a large lag, and one subtraction serves them all.
"""

import numpy as np
from numpy.typing import NDArray

from sim.errors import InvariantError
from sim.scheduler.walker import Entry

Ints = NDArray[np.int64]

# `known`, `cursor` and `over` advance together by the tokens emitted, so they are neighbours: one 2-D addition.
KNOWN, CURSOR, OVER, LAG, DRAFTS, SLOTS, ROW, SPECULATES, PLACEHOLDERS, SETTLED = range(10)
NUM_COLUMNS = 10


class Running:
    """Columns of the requests in the running list; index 0 was admitted first.

    Attributes:
        count: requests running.
        known: prompt + output tokens known (placeholders of steps in flight included).
        cursor: flat index of the next output position (see `RequestTable.output_offset`).
        over: output tokens emitted minus output length: negative until done.
        lag: known tokens not computed yet; minus the drafts in flight once a step is scheduled.
        drafts: drafts proposed for the next step.
        slots: KV slots held (blocks x block_size).
        row: request table row.
        speculates: 1, or 0 for requests that opted out.
        placeholders: tokens counted in `known` that a step in flight has yet to produce (asynchronous scheduling).
        settled: tokens that were final when it was last scheduled; kept up to date for prefix caching only.
    """

    def __init__(self, capacity: int) -> None:
        self.cells = np.zeros((NUM_COLUMNS, capacity), np.int64)
        self.resize(0)

    def resize(self, count: int) -> None:
        """Set the number of running requests and re-slice the views."""
        self.count = count
        view = self.cells[:, :count]
        self.known, self.cursor, self.over = view[KNOWN], view[CURSOR], view[OVER]
        self.lag, self.drafts, self.slots = view[LAG], view[DRAFTS], view[SLOTS]
        self.row, self.speculates, self.placeholders = view[ROW], view[SPECULATES], view[PLACEHOLDERS]
        self.settled = view[SETTLED]

    def extend(self, entries: list[Entry], block_size: int) -> None:
        """Admit requests at the end of the list, without drafts."""
        for at, entry in enumerate(entries, self.count):
            row, known, lag, cursor, end, blocks, speculates, settled = entry
            self.cells[:, at] = (known, cursor, cursor - end, lag, 0, blocks * block_size, row, speculates, 0, settled)
        self.resize(self.count + len(entries))

    def entries(self, block_size: int) -> list[Entry]:
        """The running requests one by one, in order of admission."""
        columns = self.cells[:, : self.count].T.tolist()
        return [
            Entry(row, known, lag, cursor, cursor - over, slots // block_size, speculates, settled)
            for known, cursor, over, lag, _, slots, row, speculates, _, settled in columns
        ]

    def keep(self, indices: Ints) -> None:
        """Keep only these positions, in their order."""
        self.cells[:, : len(indices)] = self.cells[:, indices]
        self.resize(len(indices))

    def check(self) -> None:
        """Every running request still owes output, knows its tokens and runs only once.

        Raises:
            InvariantError: one does not.
        """
        if self.count and (self.over.max() >= 0 or len(np.unique(self.row)) != self.count):
            raise InvariantError(f"running list holds finished or repeated requests: rows {self.row.tolist()}")
