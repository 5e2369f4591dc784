"""`prefix_affinity`: to the replica that has served the beginning of the prompt, unless the load is too uneven."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.routing.base import ROUTERS, Chooser, Load, LowestInTurn, RoutingPolicy
from sim.workload.requests import RequestTable


@ROUTERS.register
class PrefixAffinity(RoutingPolicy):
    """The replica that served the request with which the prompt shares most; otherwise the fewest outstanding.

    After the cache-aware policy of vllm-router and sglang-gateway, with their defaults. They compare the text with what
    they sent to each replica; here it is known which earlier request a prompt begins like.

    Attributes:
        cache_threshold: share of the prompt that must have been seen.
        balance_abs_threshold, balance_rel_threshold: only the load counts when the busiest replica has more than this
            many requests over the idlest, and more than this many times as many.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "prefix_affinity", "cache_threshold": 0.5}]})

    kind: Literal["prefix_affinity"] = "prefix_affinity"
    cache_threshold: Annotated[float, Field(ge=0, le=1)] = 0.3
    balance_abs_threshold: Annotated[int, Field(ge=0, le=1_000_000)] = 64
    balance_rel_threshold: Annotated[float, Field(ge=1, le=1e6)] = 1.5

    def bind(self, num_replicas: int, table: RequestTable) -> Chooser:
        """Knows of no request yet."""
        return _Affine(self, table)


class _Affine(LowestInTurn):
    def __init__(self, policy: PrefixAffinity, table: RequestTable) -> None:
        super().__init__()
        self._policy = policy
        self._replica = np.full(len(table), -1, np.int64)
        self._parent = np.full(len(table), -1, np.int64)
        if table.prefixes is not None:
            known = table.prefixes.tokens >= policy.cache_threshold * table.prompt_tokens
            self._parent = np.where(known, table.prefixes.parent, -1)

    def choose(self, row: int, loads: Sequence[Load]) -> int:
        outstanding = [load.outstanding for load in loads]
        parent = int(self._parent[row])
        chosen = int(self._replica[parent]) if parent >= 0 else -1
        if chosen < 0 or self._uneven(outstanding):
            chosen = self.lowest(outstanding)
        self._replica[row] = chosen
        return chosen

    def _uneven(self, outstanding: Sequence[int]) -> bool:
        most, least = max(outstanding), min(outstanding)
        policy = self._policy
        return most - least > policy.balance_abs_threshold and most > policy.balance_rel_threshold * least
