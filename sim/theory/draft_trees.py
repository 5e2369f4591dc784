"""Token trees: what a draft with several guesses per position looks like, and the best one for given acceptances.

A node is the path of ranks that leads to it from the root (the last known token, which is no node): `(0, 2)` is the
third best guess after the best one, as in Medusa's `medusa_choices` and vLLM's `speculative_token_tree`. A tree lists
its nodes so that every prefix of the list is a tree itself: verifying K drafts means verifying the first K nodes. A
chain is the tree with one node per depth.

Children are tested in turn and at most one is taken (zero-and-renormalise: EAGLE, SpecInfer), so the expected tokens of
a step are the sum of path products over all nodes, root included: Sequoia, arXiv 2402.12374, section 3.1.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Node = tuple[int, ...]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DraftTree:
    """A token tree.

    Attributes:
        nodes: without the root, every node after its parent; the order in which a smaller tree is filled.
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Raise ValueError unless every node comes once, after its parent."""
        seen: set[Node] = {()}
        for node in self.nodes:
            if not node or node in seen or min(node) < 0:
                raise ValueError(f"node {list(node)} is the root, stands twice or has a negative rank")
            if node[:-1] not in seen:
                raise ValueError(f"node {list(node)} stands before its parent {list(node[:-1])}, or without it")
            seen.add(node)

    @cached_property
    def depth(self) -> int:
        """The most drafts that a step can accept."""
        return max((len(node) for node in self.nodes), default=0)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Nodes at depth 1, 2, ..."""
        return tuple(sum(len(node) == depth for node in self.nodes) for depth in range(1, self.depth + 1))

    @cached_property
    def expanded(self) -> tuple[int, ...]:
        """Nodes with children at depth 1, 2, ... depth - 1: tokens of the drafter's second, third, ... pass."""
        parents = {node[:-1] for node in self.nodes}
        return tuple(sum(len(node) == depth for node in parents) for depth in range(1, self.depth))

    def first(self, num_nodes: int) -> "DraftTree":
        """The tree of the first `num_nodes` nodes."""
        return self if num_nodes >= len(self.nodes) else DraftTree(self.nodes[: max(0, num_nodes)])

    def path_products(self, rates: Floats) -> Floats:
        """(..., nodes) chance that the target walks to each node.

        Args:
            rates: (..., depths, ranks) chance that the target takes the child of each rank, by the child's depth; ranks
                and depths beyond it are never taken.
        """
        *batch, depths, ranks = rates.shape
        products = np.zeros((*batch, len(self.nodes) + 1))
        products[..., 0] = 1.0
        index = {(): 0} | {node: at for at, node in enumerate(self.nodes, 1)}
        for node in self.nodes:
            if len(node) <= depths and node[-1] < ranks:
                rate = rates[..., len(node) - 1, node[-1]]
                products[..., index[node]] = products[..., index[node[:-1]]] * rate
        return products[..., 1:]

    def survival(self, rates: Floats) -> Floats:
        """(..., depth) chance that a step accepts at least 1, 2, ... drafts; tokens per step are 1 + their sum."""
        depths = np.array([len(node) for node in self.nodes])
        at_depth = depths[:, None] == np.arange(1, self.depth + 1)
        survival: Floats = self.path_products(rates) @ at_depth.astype(np.float64)
        return survival

    def steps(self, num_ranks: int) -> Ints:
        """(nodes + 2, num_ranks + 1) where each rank leads from each node: the walk of the target through the tree.

        Nodes count from 1 in their order, 0 is the root. The last row is the end of every walk and leads to itself, as
        does a rank without a node here; the last rank stands for "none of the children".
        """
        end = len(self.nodes) + 1
        steps = np.full((end + 1, num_ranks + 1), end, np.int64)
        index = {(): 0} | {node: at for at, node in enumerate(self.nodes, 1)}
        for node in self.nodes:
            if node[-1] < num_ranks:
                steps[index[node[:-1]], node[-1]] = index[node]
        return steps


@dataclass(frozen=True)
class FixedShape:
    """The same tree at every step.

    Attributes:
        fixed: the tree; verified are its first nodes, at most all.
    """

    fixed: DraftTree

    @property
    def num_nodes(self) -> int:
        """Drafts verified per step at most, root not counted."""
        return len(self.fixed.nodes)

    @property
    def depth(self) -> int:
        """The most drafts that a step can accept."""
        return self.fixed.depth

    def tree(self, rates: Floats) -> DraftTree:
        """The tree, whatever the text."""
        return self.fixed

    def pass_widths(self, num_nodes: int) -> tuple[int, ...]:
        """Tokens per request of each drafter pass after the first: the nodes of a depth that have children."""
        return self.fixed.first(num_nodes).expanded


@dataclass(frozen=True)
class GrownShape:
    """Trees grown step by step where the drafter is confident (EAGLE-2, arXiv 2406.16858).

    Attributes:
        num_nodes: drafts verified, root not counted.
        depth: levels: the drafter's passes.
        top_k: nodes expanded per level, and children of each.
    """

    num_nodes: int
    depth: int
    top_k: int

    def tree(self, rates: Floats) -> DraftTree:
        """The tree that the drafter grows where it expects these acceptances, shape (depths, ranks).

        Raises:
            ValueError: it never sees that many nodes.
        """
        key = tuple(tuple(row) for row in rates[: self.depth].tolist())
        return _beam_tree(key, self.num_nodes, self.depth, self.top_k)

    @property
    def num_seen(self) -> int:
        """Nodes that the drafter sees, of which it keeps `num_nodes`."""
        return self.top_k + (self.depth - 1) * self.top_k**2

    def pass_widths(self, num_nodes: int) -> tuple[int, ...]:
        """Every level is grown, however few of its nodes are kept."""
        return (self.top_k,) * (self.depth - 1)


#: What a method fixes about its trees beforehand.
TreeShape = FixedShape | GrownShape


def chain(depth: int) -> DraftTree:
    """One node per depth."""
    return DraftTree(tuple((0,) * length for length in range(1, depth + 1)))


def tree_of_widths(widths: Sequence[int]) -> DraftTree:
    """Every node of depth d has widths[d] children (SpecInfer's expansion configuration, arXiv 2305.09781); by depth.

    Raises:
        ValueError: the tree would be empty or have more than 1,000 nodes.
    """
    level, nodes = [Node()], list[Node]()
    for width in widths:
        if len(level) * width > 1_000:
            raise ValueError(f"widths {list(widths)} give more than 1,000 nodes")
        level = [(*node, rank) for node in level for rank in range(width)]
        nodes += level
    if not nodes:
        raise ValueError("a tree needs at least one node")
    return DraftTree(tuple(nodes))


def best_tree(rates: Floats, num_nodes: int) -> DraftTree:
    """The tree of `num_nodes` nodes that emits most: the largest path products, largest first.

    Products fall along every path, so the largest ones are a tree, and a heap finds what Sequoia's dynamic programme
    does; the first n nodes are the best tree of n nodes.

    Args:
        rates: (depths, ranks) acceptances, falling (or level) with the rank; the tree is no deeper or wider than these.
        num_nodes: 1 to the number of nodes that these depths and ranks allow.

    Raises:
        ValueError: there are not that many nodes.
    """
    depths, ranks = rates.shape
    nodes: list[Node] = []
    heap: list[tuple[float, int, Node]] = []

    def push(parent: float, node: Node) -> None:
        if len(node) <= depths and node[-1] < ranks:
            heapq.heappush(heap, (-parent * float(rates[len(node) - 1, node[-1]]), len(node), node))

    push(1.0, (0,))
    products: dict[Node, float] = {(): 1.0}
    while heap and len(nodes) < num_nodes:
        negative, _, node = heapq.heappop(heap)
        nodes.append(node)
        products[node] = -negative
        push(products[node[:-1]], (*node[:-1], node[-1] + 1))
        push(-negative, (*node, 0))
    if len(nodes) < num_nodes:
        raise ValueError(f"{depths} depths of {ranks} ranks hold {len(nodes)} nodes, not {num_nodes}")
    return DraftTree(tuple(nodes))


@lru_cache(maxsize=4096)
def _beam_tree(rates: tuple[tuple[float, ...], ...], num_nodes: int, depth: int, top_k: int) -> DraftTree:
    """EAGLE-2's tree for these expected acceptances, most promising node first.

    Level 1 are the `top_k` best guesses. Of every level the `top_k` nodes with the largest path products are expanded
    into `top_k` children each; of all nodes seen the `num_nodes` largest products are verified (`topK_genrate` of the
    EAGLE repository, `select_top_k_tokens` of SGLang).
    """
    beam: list[tuple[float, Node]] = [(1.0, ())]
    seen: list[tuple[float, Node]] = []
    for level in range(depth):
        row = (*(rates[level] if level < len(rates) else ()), *([0.0] * top_k))[:top_k]
        children = [(product * rate, (*node, rank)) for product, node in beam for rank, rate in enumerate(row)]
        seen += children
        beam = _largest(children, top_k)
    if num_nodes > len(seen):
        raise ValueError(f"depth {depth} and top_k {top_k} hold {len(seen)} nodes, not {num_nodes}")
    return DraftTree(tuple(node for _, node in _largest(seen, num_nodes)))


def _largest(scored: Iterable[tuple[float, Node]], count: int) -> list[tuple[float, Node]]:
    """The largest products; of equal ones the shallowest, then the lowest ranks, so that parents come first."""
    return heapq.nsmallest(count, scored, key=lambda item: (-item[0], len(item[1]), item[1]))
