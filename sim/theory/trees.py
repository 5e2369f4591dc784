"""Draft trees: expected tokens by path products, the best tree of a size, and the best size for a batch.

Positional assumption of Sequoia (arXiv 2402.12374): the child of rank r is accepted with p_r whatever its context, and
ranks exclude one another. A verification then emits one token per node of the accepted path, root included, so the
expected tokens are the sum over all nodes of the products along their paths. Sizes count the root: a tree of n nodes
verifies n tokens, n - 1 of them drafts.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.theory.tokens import expected_tokens

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Node:
    """One draft of a tree.

    Attributes:
        parent: index of its parent in the tree's nodes; -1 for the root.
        rank: which child of the parent, 0 the likeliest.
        depth: edges from the root.
        reached: P(the node is accepted), the product along its path.
    """

    parent: int
    rank: int
    depth: int
    reached: float


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A tree as nodes in order of falling path product, the root first."""

    nodes: tuple[Node, ...]

    @property
    def depth(self) -> int:
        """Edges on the longest path: drafting passes of an autoregressive drafter."""
        return max(node.depth for node in self.nodes)

    @property
    def expected_tokens(self) -> float:
        """Tokens per step, bonus token included."""
        return sum(node.reached for node in self.nodes)

    def widths(self) -> tuple[int, ...]:
        """Nodes at depths 1, 2, ..."""
        return tuple(sum(node.depth == depth for node in self.nodes) for depth in range(1, self.depth + 1))


def check_ranks(acceptance: Sequence[float]) -> None:
    """Raise ValueError unless the ranks' acceptances can be those of children that exclude one another."""
    if not acceptance or min(acceptance) < 0 or sum(acceptance) > 1 + 1e-9:
        raise ValueError(f"acceptances by rank must not be negative and sum to at most 1, found {list(acceptance)}")
    if any(later > earlier for earlier, later in itertools.pairwise(acceptance)):
        raise ValueError(f"acceptances must not increase with the rank, found {list(acceptance)}")


def best_tree(acceptance: Sequence[float], size: int, max_depth: int | None = None) -> DraftTree:
    """The tree of `size` nodes with the most expected tokens: the largest path products, from a heap.

    Products fall along paths and with the rank, so the largest ones always form a tree. Fewer nodes where the depth
    or the acceptances leave no more.

    Args:
        acceptance: p_r by rank, never increasing, summing to at most 1.
        size: nodes, root included.
        max_depth: longest path in edges; None for no limit.

    Raises:
        ValueError: acceptances are none, or `size` < 1.
    """
    check_ranks(acceptance)
    if size < 1:
        raise ValueError(f"a tree has at least its root, found {size} nodes")
    nodes = [Node(-1, 0, 0, 1.0)]
    heap = _first_child(acceptance, nodes, 0, max_depth)
    while heap and len(nodes) < size:
        product, parent, rank = heapq.heappop(heap)
        above = nodes[parent]
        nodes.append(Node(parent, rank, above.depth + 1, -product))
        if rank + 1 < len(acceptance) and acceptance[rank + 1] > 0:
            heapq.heappush(heap, (-above.reached * acceptance[rank + 1], parent, rank + 1))
        for child in _first_child(acceptance, nodes, len(nodes) - 1, max_depth):
            heapq.heappush(heap, child)
    return DraftTree(tuple(nodes))


def _first_child(
    acceptance: Sequence[float], nodes: list[Node], parent: int, max_depth: int | None
) -> list[tuple[float, int, int]]:
    node = nodes[parent]
    deep = max_depth is not None and node.depth >= max_depth
    return [] if deep or acceptance[0] <= 0 else [(-node.reached * acceptance[0], parent, 0)]


def best_tokens(acceptance: Sequence[float], size: int, max_depth: int | None = None) -> Floats:
    """Expected tokens of the best tree of 1..`size` nodes, by Sequoia's dynamic programme: an oracle for `best_tree`.

    F(n) = 1 + G_0(n - 1): the children of ranks r and above share m nodes as
    G_r(m) = max over j of p_r F(j) + G_{r+1}(m - j), one depth after the other.

    Returns:
        (size,) values by number of nodes, root included; trees may leave nodes out, so they never fall.
    """
    check_ranks(acceptance)
    best: Floats = np.concatenate(([0.0], np.ones(size)))  # by nodes: no tree, then only the root
    for _ in range(size if max_depth is None else max_depth):
        shared = np.zeros(size + 1)
        for p in reversed(acceptance):
            shared = np.array([float((p * best[: m + 1] + shared[m::-1]).max()) for m in range(size + 1)])
        following = np.concatenate(([0.0], 1.0 + shared[:size]))
        if np.array_equal(following, best):
            break
        best = following
    return best[1:]


def guesses_tokens(alpha: float, guess_length: int, num_guesses: int) -> float:
    """Expected tokens of b independent guesses of length g verified at once (Lookahead, arXiv 2402.02057).

    E = (g + 1) - sum over i = 1..g of (1 - alpha^i)^b.
    """
    return guess_length + 1 - sum((1.0 - alpha**i) ** num_guesses for i in range(1, guess_length + 1))


@dataclass(frozen=True, slots=True)
class CostLine:
    """Times of one engine step, in ms: a straight line over verified tokens, and drafting by depth.

    Attributes:
        base_ms: of a target pass, whatever it verifies.
        token_ms: per verified token of the batch.
        draft_ms: per level of the tree (a drafter pass).
    """

    base_ms: float
    token_ms: float
    draft_ms: float = 0.0

    def speedup(self, nodes: Floats, depth: Floats, tokens: Floats, batch: int) -> Floats:
        """Tokens per second over those of plain decoding at the same batch, for trees of these sizes, all (T,)."""
        plain = self.base_ms + self.token_ms * batch
        step = self.base_ms + self.token_ms * batch * nodes + self.draft_ms * depth
        speedup: Floats = tokens * plain / step
        return speedup


@dataclass(frozen=True, slots=True)
class BestSize:
    """The best tree of a batch; one of a single node is plain decoding.

    Attributes:
        batch: requests.
        nodes, depth: its size with the root, and its longest path.
        tokens_per_step: bonus token included.
        speedup: over plain decoding.
    """

    batch: int
    nodes: int
    depth: int
    tokens_per_step: float
    speedup: float


def best_sizes(
    acceptance: Sequence[float], cost: CostLine, batches: Sequence[int], max_size: int, max_depth: int | None = None
) -> tuple[BestSize, ...]:
    """The size and depth limit with the largest speed-up at each batch; the smallest of equal ones.

    Every depth limit is tried with every size, for a deep tree pays more drafting passes.
    """
    deepest = best_tree(acceptance, max_size, max_depth).depth
    whole = [best_tree(acceptance, max_size, depth) for depth in range(deepest + 1)]
    trees = [DraftTree(tree.nodes[:n]) for tree in whole for n in range(1, len(tree.nodes) + 1)]
    sizes = np.array([(len(tree.nodes), tree.depth, tree.expected_tokens) for tree in trees])
    return tuple(_best(sizes, cost, batch) for batch in batches)


def _best(sizes: Floats, cost: CostLine, batch: int) -> BestSize:
    gains = cost.speedup(sizes[:, 0], sizes[:, 1], sizes[:, 2], batch)
    at = int(np.lexsort((sizes[:, 0], -gains))[0])
    nodes, depth, tokens = sizes[at]
    return BestSize(batch, int(nodes), int(depth), float(tokens), float(gains[at]))


@dataclass(frozen=True, slots=True)
class TreeRow:
    """The best tree of one size.

    Attributes:
        nodes, depth: its size with the root, and its longest path.
        tokens_per_step: bonus token included.
        chain_tokens_per_step: of a chain of as many nodes.
        widths: nodes at depths 1, 2, ...
        tree: all nodes.
    """

    nodes: int
    depth: int
    tokens_per_step: float
    chain_tokens_per_step: float
    widths: tuple[int, ...]
    tree: DraftTree


def tree_row(acceptance: Sequence[float], size: int, max_depth: int | None = None) -> TreeRow:
    """The best tree of a size beside the chain."""
    tree = best_tree(acceptance, size, max_depth)
    chain = expected_tokens(acceptance[0], min(size - 1, max_depth or size))
    return TreeRow(len(tree.nodes), tree.depth, tree.expected_tokens, chain, tree.widths(), tree)
