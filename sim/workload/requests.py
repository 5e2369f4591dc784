"""The request table: what every arm of a scenario meets, as columns. Built by `Workload`, read by everyone below."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RequestTable:
    """N requests in order of arrival; a request's row index is its identity for random numbers.

    Attributes:
        arrival_ns: (N,) arrival times, non-decreasing; all 0 in a closed loop, where a request arrives when a user is
            free.
        prompt_tokens: (N,) prompt lengths, >= 1.
        output_tokens: (N,) output lengths, >= 1. Known to the simulator, never to the scheduler before the end.
        class_id: (N,) index into `class_names`.
        speculate: (N,) False where the request opts out of speculation.
        class_names: names of the traffic classes.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    class_id: Ints
    speculate: Bools
    class_names: tuple[str, ...] = ("default",)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @cached_property
    def output_offset(self) -> Ints:
        """(N,) where each row starts in a flat array over all output positions (see `num_positions`).

        Position j of row r, counted from 0 (the token that prefill produces), is at `output_offset[r] + j`.
        """
        return np.concatenate(([0], np.cumsum(self.output_tokens)[:-1])).astype(np.int64)

    def output_limit(self, max_model_len: int) -> Ints:
        """(N,) tokens each request can emit before its output, or the context of the engine, ends; <= 0 for none."""
        return np.minimum(self.output_tokens, max_model_len - self.prompt_tokens)

    def tiled(self, times: int) -> "RequestTable":
        """These requests `times` over, all rows one after another (for statistics, not for a server)."""
        numbers = self.arrival_ns, self.prompt_tokens, self.output_tokens, self.class_id
        arrival, prompt, output, class_id = (np.tile(column, times) for column in numbers)
        return RequestTable(arrival, prompt, output, class_id, np.tile(self.speculate, times), self.class_names)

    @cached_property
    def num_positions(self) -> int:
        """Length of the flat arrays: the sum of all output lengths."""
        return int(self.output_tokens.sum())
