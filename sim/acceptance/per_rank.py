"""`per_rank`: the target takes the drafter's best, second best, ... guess; what token trees need to know."""

from functools import lru_cache
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.acceptance.base import (
    ACCEPTANCE,
    MAX_DRAFT_TOKENS,
    NEVER,
    AcceptanceModel,
    Counts,
    Floats,
    Ints,
    Streams,
    Tape,
)
from sim.acceptance.depth import DEPTH_STREAM
from sim.acceptance.labels import MAX_DEPTH, LabelledTrees, label_codes, labels_of
from sim.acceptance.positions import Positions
from sim.acceptance.spread import REQUEST_STREAM, RequestSpread, pooled_survival, quantile_nodes
from sim.errors import ScenarioError
from sim.spec import Seq
from sim.theory.draft_trees import FixedShape, GrownShape, TreeShape, chain
from sim.units import Probability
from sim.workload.requests import RequestTable

#: Name of the stream with what the drafter knows of each position.
CONFIDENCE_STREAM = "acceptance/confidence"

Rates = Seq[Probability]


@ACCEPTANCE.register
class PerRank(AcceptanceModel):
    """At every position the target takes the child of rank r with probability rates[r], or none of them.

    Children are tested in turn and at most one is taken, so a step walks down a token tree by the rank of each
    position, as long as the tree has that node. A chain is the tree that only has best guesses: the same as `iid` (or
    `per_depth`) of the first rates. Rates count drafts only; tokens per step, bonus token included, are 1 + the sum of
    the path products of all nodes (Sequoia, arXiv 2402.12374).

    `confidence_spread` is for trees that grow where the drafter is confident (EAGLE-2): the drafter tells easy from
    hard positions, half and half and independent of one another, and its best guess is taken that much more or less
    often there. It is the correlation of the drafter's confidence with what is accepted times the standard deviation of
    the latter; 0 says that confidence tells nothing beyond the rank.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "per_rank", "rates": [0.7, 0.12, 0.05, 0.03]},
                {
                    "kind": "per_rank",
                    "rates": [0.7, 0.12, 0.05, 0.03],
                    "deeper": [[0.65, 0.12, 0.05, 0.03]],
                    "confidence_spread": 0.2,
                    "request_spread": {"kind": "beta", "concentration": 15},
                },
            ]
        }
    )

    kind: Literal["per_rank"] = "per_rank"
    rates: Rates = Field(
        min_length=1,
        max_length=64,
        description="P(the target takes the best, second best, ... guess); falling, at most 1 in all; bonus excluded",
    )
    deeper: Seq[Rates] = Field(
        default=(), max_length=64, description="The same at depth 2, 3, ... of the draft; the last list holds below it."
    )
    confidence_spread: Probability = Field(
        default=0.0,
        description="What the drafter knows of a position: the first rate is this much higher or lower there.",
    )
    request_spread: RequestSpread | None = Field(
        default=None,
        description="How the first rates vary over requests; their mean stays, the other ranks share what is left.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        table = _rank_table(self, 1 + len(self.deeper))
        best, spread = table[:, 0], self.confidence_spread
        if bool((best + spread > 1).any() or (best < spread).any()):
            raise ValueError(f"confidence_spread {spread:g} takes a first rate out of 0..1")
        levels = _by_rank(best + spread * np.array([[-1.0], [1.0]]), table)
        if bool((table.sum(axis=1) > 1 + 1e-9).any()):
            raise ValueError("the rates of one depth are exclusive: their sum is at most 1")
        if bool((levels[..., 1:] > levels[..., :-1] + 1e-12).any()):
            raise ValueError("rates must fall with the rank, also at positions that confidence_spread makes hard")
        return self

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape of a chain: only best guesses count."""
        return Tape(self.tree_tape(requests, FixedShape(chain(max_draft_tokens)), streams).accepted)

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact for a chain: running products of the first rates."""
        return self.tree_survival(FixedShape(chain(max_draft_tokens)), max_draft_tokens)

    def check_tree(self, shape: TreeShape, num_draft_tokens: int) -> None:
        """Any tree, but one that adapts to the drafter's confidence must not be too deep to follow."""
        if _adapts(self, shape) and shape.depth > MAX_DEPTH:
            raise ScenarioError(
                f"acceptance `per_rank` follows confidence_spread to depth {MAX_DEPTH}, but this tree is "
                f"{shape.depth} deep"
            )

    def tree_tape(self, requests: RequestTable, shape: TreeShape, streams: Streams) -> Tape:
        """Draw the ranks that the target takes, one per position, and walk every tree by them."""
        self.check_tree(shape, shape.num_nodes)
        positions = Positions(requests, shape.depth)
        draws = positions.uniforms(streams, DEPTH_STREAM)
        easy = np.zeros(len(draws), np.int64)
        if self.confidence_spread:
            easy = (positions.uniforms(streams, CONFIDENCE_STREAM) < 0.5).astype(np.int64)
        rates = _request_rates(self, streams.per_row(REQUEST_STREAM, len(requests)), shape.depth)
        row = positions.per_row(np.arange(len(requests)) if len(rates) > 1 else np.zeros(len(requests), np.int64))
        reach = _walk(_Forest.of(self, shape, easy), _ranks(draws, easy, row, rates))
        reach = positions.trim(reach)
        return Tape((reach != NEVER).sum(axis=1, dtype=np.uint8), reach=reach)

    def tree_survival(self, shape: TreeShape, num_draft_tokens: int) -> Floats:
        """Exact: path products; over the drafter's confidence and over requests, weighted by their steps."""
        self.check_tree(shape, num_draft_tokens)
        return _survival(self, shape, num_draft_tokens).copy()


class _Forest(NamedTuple):
    """Trees by what the drafter knows: `steps` (codes, nodes + 2, ranks + 1), and (T,) which one is met where."""

    steps: Ints
    met: Ints
    depth: int

    @classmethod
    def of(cls, model: PerRank, shape: TreeShape, easy: Ints) -> "_Forest":
        """The trees that occur on these positions."""
        adapts = _adapts(model, shape)
        codes, met = np.unique(label_codes(easy, shape.depth if adapts else 0), return_inverse=True)
        expected, mean, depths = _expected(model, shape.depth), _rank_table(model, shape.depth), np.arange(shape.depth)
        known = (expected[labels_of(int(code), shape.depth), depths] if adapts else mean for code in codes)
        return cls(np.stack([shape.tree(rates).steps(mean.shape[1]) for rates in known]), met, shape.depth)


def _walk(forest: _Forest, ranks: list[Ints]) -> Counts:
    """(T, depth) the node that a step starting at each position reaches at each depth; NEVER once it has left."""
    steps, met, depth = forest
    end = steps.shape[1] - 1
    node = np.zeros(len(met), np.int64)
    reach = np.full((len(met), depth), NEVER, np.uint8)
    for level in range(depth):
        inside = max(len(met) - level, 0)
        node[:inside] = steps[met[:inside], node[:inside], ranks[level][level:]]
        node[inside:] = end
        reach[:, level] = np.where(node == end, NEVER, node)
    return reach


def _ranks(draws: Floats, easy: Ints, row: Ints, rates: Floats) -> list[Ints]:
    """Per depth (T,): the rank that the target takes at each position; the number of ranks stands for none."""
    found: list[Ints] = []
    for depth in range(rates.shape[2]):
        if depth and np.array_equal(rates[:, :, depth], rates[:, :, depth - 1]):
            found.append(found[-1])
            continue
        rank = np.zeros(len(draws), np.int64)
        for up_to in np.moveaxis(rates[:, :, depth].cumsum(axis=-1), -1, 0):
            rank += draws >= up_to[row, easy]
        found.append(rank)
    return found


def _rank_table(model: PerRank, depth: int) -> Floats:
    """(depth, ranks) stated rates."""
    lists = (model.rates, *model.deeper)
    table = np.zeros((depth, max(map(len, lists))))
    for level in range(depth):
        rates = lists[min(level, len(lists) - 1)]
        table[level, : len(rates)] = rates
    return table


def _by_rank(best: Floats, table: Floats) -> Floats:
    """(..., depth, ranks) rates when those of the best guess are `best` (..., depth); the others share what is left."""
    left = 1.0 - table[:, :1]
    share = np.divide(table[:, 1:], left, out=np.zeros_like(table[:, 1:]), where=left > 0)
    return np.concatenate((best[..., None], (1.0 - best[..., None]) * share), axis=-1)


def _expected(model: PerRank, depth: int) -> Floats:
    """(2, depth, ranks) rates at hard and easy positions, over all requests; the same twice without confidence."""
    table = _rank_table(model, depth)
    return _by_rank(table[:, 0] + model.confidence_spread * np.array([[-1.0], [1.0]]), table)


def _adapts(model: PerRank, shape: TreeShape) -> bool:
    """Whether trees differ from position to position."""
    return isinstance(shape, GrownShape) and model.confidence_spread > 0


def _request_rates(model: PerRank, uniform: Floats, depth: int) -> Floats:
    """(N, 2, depth, ranks) rates of requests by their uniforms (N,); N = 1 when requests do not differ."""
    expected = _expected(model, depth)
    if model.request_spread is None:
        return expected[None]
    best = model.request_spread.rates(uniform, expected[..., 0].ravel()).reshape(-1, 2, depth)
    return _by_rank(best, _rank_table(model, depth))


@lru_cache(maxsize=1024)
def _survival(model: PerRank, shape: TreeShape, num_draft_tokens: int) -> Floats:
    nodes, weights = quantile_nodes()
    if isinstance(shape, GrownShape) and model.confidence_spread:
        by_request = _labelled(model, shape.depth, shape.top_k).survival(num_draft_tokens)
    else:  # the tree does not depend on the labels, so those ahead are independent of what was accepted
        rates = _request_rates(model, nodes, shape.depth).mean(axis=1)
        tree = shape.tree(_rank_table(model, shape.depth)).first(num_draft_tokens)
        by_request = np.zeros((len(rates), shape.depth))
        by_request[:, : tree.depth] = tree.survival(rates)
    return by_request[0] if len(by_request) == 1 else pooled_survival(by_request, weights)


@lru_cache(maxsize=8)
def _labelled(model: PerRank, depth: int, top_k: int) -> LabelledTrees:
    """Trees as large as any, whose first nodes are the smaller ones."""
    seen = GrownShape(1, depth, top_k).num_seen
    rates = _request_rates(model, quantile_nodes()[0], depth)
    return LabelledTrees.of(GrownShape(min(seen, MAX_DRAFT_TOKENS), depth, top_k), _expected(model, depth), rates)
