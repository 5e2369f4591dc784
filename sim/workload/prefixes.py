"""What prompts have in common: system prompts, earlier turns of a session, and the block hashes of a trace."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field

from sim.rng import Floats
from sim.spec import Spec
from sim.units import PositiveCount
from sim.workload.lengths.base import Tokens
from sim.workload.requests import Ints, Sessions, SharedPrefixes

#: Tokens per block of a Mooncake trace.
HASH_BLOCK_TOKENS = 512


class SharedPrefix(Spec):
    """A system prompt, documents or examples before the user's own tokens; just a number stands for `{tokens: ...}`.

    The tokens come on top of `prompt_tokens`, as with `vllm bench serve --random-prefix-len`.

    Attributes:
        tokens: length of the prefix.
        count: how many different prefixes of this length there are (tenants, tools, documents).
        skew: exponent of Zipf's law: the i-th most popular prefix is asked for i^-skew times as often as the first;
            0 = all alike.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tokens": 800}, {"tokens": 2000, "count": 50, "skew": 1}]}
    )

    tokens: Tokens
    count: Annotated[PositiveCount, Field(le=1_000_000)] = 1
    skew: Annotated[float, Field(ge=0, le=10)] = 0.0

    def choose(self, uniforms: Floats) -> Ints:
        """Which prefix each row has, 0..count-1."""
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -self.skew
        bounds = np.cumsum(weights)[:-1] / weights.sum()
        return np.searchsorted(bounds, uniforms, side="right").astype(np.int64)


def _from_tokens(value: Any) -> Any:
    return {"tokens": value} if isinstance(value, int | str) and not isinstance(value, bool) else value


#: What a scenario writes under `shared_prefix`: a number of tokens, or a mapping.
PrefixChoice = Annotated[SharedPrefix, BeforeValidator(_from_tokens, json_schema_input_type=int | SharedPrefix)]


@dataclass(frozen=True, eq=False)
class BlockHashes:
    """Hashes of the prompt blocks of trace rows: those of row i are `ids[offset[i] : offset[i + 1]]`."""

    ids: Ints
    offset: Ints

    @classmethod
    def of(cls, rows: Iterable[list[int]]) -> "BlockHashes":
        """From one list per row."""
        lists = list(rows)
        offset = np.concatenate(([0], np.cumsum([len(ids) for ids in lists]))).astype(np.int64)
        return cls(np.array([number for ids in lists for number in ids], np.int64), offset)

    def rows(self, part: slice) -> "BlockHashes":
        """Some consecutive rows."""
        offset = self.offset[part.start : part.stop + 1]
        return BlockHashes(self.ids[offset[0] : offset[-1]], offset - offset[0])

    def shared(self, rows: Ints, prompt_tokens: Ints) -> SharedPrefixes:
        """What requests share that take these trace rows, in this order.

        A trace row that comes around again stands for other text: repeats share nothing with the first time.

        Args:
            rows: (N,) trace row of each request.
            prompt_tokens: (N,) their prompts.
        """
        ids, offset = self.ids.tolist(), self.offset.tolist()
        tree: dict[tuple[int, int], tuple[int, int]] = {}  # (node, hash) -> its node, the first request there
        times = np.zeros(len(offset) - 1, np.int64)
        parent, blocks = np.full(len(rows), -1), np.zeros(len(rows), np.int64)
        for index, row in enumerate(rows.tolist()):
            times[row] += 1
            node = -int(times[row])
            for block, number in enumerate(ids[offset[row] : offset[row + 1]], 1):
                node, seen_in = tree.setdefault((node, number), (len(tree), index))
                if seen_in != index:
                    parent[index], blocks[index] = seen_in, block
        tokens = np.minimum(blocks * HASH_BLOCK_TOKENS, np.minimum(prompt_tokens, prompt_tokens[parent]))
        return SharedPrefixes(parent, np.where(parent >= 0, tokens, 0))


def grouped(group: Ints, tokens: Ints) -> SharedPrefixes:
    """Requests of one group begin with the same tokens: those of the first of them.

    Args:
        group: (N,) name of each row's prefix; -1 for none.
        tokens: (N,) its length, the same throughout a group.
    """
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    parent = first[inverse].astype(np.int64)
    shares = (group >= 0) & (parent < np.arange(len(group)))
    return SharedPrefixes(np.where(shares, parent, -1), np.where(shares, tokens, 0))


def continued(sessions: Sessions, new_tokens: Ints, output_tokens: Ints) -> Ints:
    """(N,) prompts of session turns: all that was said before, and the new tokens."""
    said = np.cumsum(new_tokens + output_tokens)
    before = said - new_tokens - output_tokens
    return np.asarray(said - before[sessions.first_row] - output_tokens)


def of_sessions(sessions: Sessions, first_turns: SharedPrefixes, prompt: Ints, output: Ints) -> SharedPrefixes:
    """A later turn begins with all of the turn before; first turns share what `first_turns` says."""
    later = sessions.turn > 0
    rows = np.arange(len(later))
    before = prompt[rows - later] + output[rows - later]
    return SharedPrefixes(np.where(later, rows - 1, first_turns.parent), np.where(later, before, first_turns.tokens))
