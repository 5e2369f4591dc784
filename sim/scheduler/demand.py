"""What running requests ask of a step: tokens of the budget, and KV slots for them. Knows no pool and no queue."""

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.running import Running

Ints = NDArray[np.int64]

#: Requests within this many tokens of max_model_len take the path that clips to it.
_LENGTH_MARGIN = 256


class Turn(Enum):
    """Whose tokens a step may hold: those of requests that decode (one known token to compute), or of all others."""

    ANYONE = "anyone"
    PREFILL = "prefill"
    DECODE = "decode"


MIXED = (Turn.ANYONE,)
#: Prefill goes first; decode has the step when there is nothing to prefill (SGLang `get_next_batch_to_run`).
SEPARATE = (Turn.PREFILL, Turn.DECODE)


class Demand:
    """Demands under the limits of one engine.

    Args:
        config: the limits.
        longest: prompt and output of the longest request, in tokens.

    Attributes:
        turns: whose turn it is, one after another, until a step has something to run.
        near_max_model_len: whether requests get so long that demands have to be clipped.
    """

    def __init__(self, config: SchedulerConfig, longest: int) -> None:
        self._config = config
        self.turns = SEPARATE if config.separate_prefill else MIXED
        self.near_max_model_len = longest + _LENGTH_MARGIN >= config.max_model_len

    def tokens(self, running: Running, turn: Turn) -> Ints:
        """The gap of each request whose turn it is, capped by the long-prefill threshold and by max_model_len."""
        config = self._config
        wanted: Ints = running.lag + running.drafts
        if turn is not Turn.ANYONE:
            wanted[(running.lag > 1) != (turn is Turn.PREFILL)] = 0
        if config.long_prefill_token_threshold:
            np.minimum(wanted, config.long_prefill_token_threshold, out=wanted)
        if self.near_max_model_len:
            room = config.max_model_len - 1 - (running.known - running.lag)
            np.minimum(wanted, np.maximum(room, 0), out=wanted)  # no room: ended, but still in a step in flight
        return wanted

    def missing_slots(self, running: Running, granted: Ints) -> Ints:
        """KV slots each request lacks for its grant and the next drafts; <= 0 where it has enough."""
        slots: Ints = running.known - running.lag + granted + self._config.lookahead_tokens
        if self.near_max_model_len:
            np.minimum(slots, self._config.max_model_len, out=slots)
        missing: Ints = slots - running.slots
        missing[granted == 0] = 0
        return missing

    def missing_blocks(self, running: Running, at: int, tokens: int) -> int:
        """KV blocks that one request lacks for a grant of so many tokens and the next drafts."""
        if tokens == 0:
            return 0
        config = self._config
        slots = int(running.known[at] - running.lag[at]) + tokens + config.lookahead_tokens
        missing = min(slots, config.max_model_len) - int(running.slots[at])
        return max(0, -(-missing // config.block_size))
