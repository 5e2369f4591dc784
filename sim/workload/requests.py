"""The request table: what every arm of a scenario meets, as columns. Built by `Workload`, read by everyone below."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SharedPrefixes:
    """Which prompts begin like an earlier request: with the first `tokens` tokens of its prompt and output.

    Attributes:
        parent: (N,) the earlier row, -1 for none.
        tokens: (N,) tokens in common, 0 for none; never more than the prompt has.
    """

    parent: Ints
    tokens: Ints


@dataclass(frozen=True, eq=False)
class Sessions:
    """Conversations: a row with a turn above 0 is sent when the row above it is answered, after a time to think.

    Attributes:
        turn: (N,) 0 for the first turn of a session.
        think_ns: (N,) from the last token of the turn before to this one; 0 for first turns.
    """

    turn: Ints
    think_ns: Ints

    @cached_property
    def first_row(self) -> Ints:
        """(N,) row of the first turn of each row's session."""
        return np.asarray(np.arange(len(self.turn)) - self.turn)


@dataclass(frozen=True, eq=False)
class RequestTable:
    """N requests in order of arrival; a request's row index is its identity for random numbers.

    Attributes:
        arrival_ns: (N,) arrival times, non-decreasing; all 0 in a closed loop, where a request arrives when a user is
            free. Of a session: when its first turn arrives.
        prompt_tokens: (N,) prompt lengths, >= 1.
        output_tokens: (N,) output lengths, >= 1. Known to the simulator, never to the scheduler before the end.
        class_id: (N,) index into `class_names`.
        speculate: (N,) False where the request opts out of speculation.
        class_names: names of the traffic classes.
        prefixes: what prompts have in common; None when they share nothing.
        sessions: None when every request stands for itself.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    class_id: Ints
    speculate: Bools
    class_names: tuple[str, ...] = ("default",)
    prefixes: SharedPrefixes | None = None
    sessions: Sessions | None = None

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
