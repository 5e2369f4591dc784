"""Draft trees: expected tokens by path products, the best tree of a size, and the best size for a batch.

Positional assumption of Sequoia (arXiv 2402.12374): the child of rank r is accepted with p_r whatever its context, and
ranks exclude one another. A verification then emits one token per node of the accepted path, root included, so the
expected tokens are the sum over all nodes of the products along their paths. Sizes count the root: a tree of n nodes
verifies n tokens, n - 1 of them drafts.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.theory import draft_trees
from sim.theory.draft_trees import Node
from sim.theory.tokens import expected_tokens

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankedTree:
    """A tree without its root, in order of falling path product.

    Attributes:
        paths: nodes by the ranks that lead to them, 0 the likeliest.
        reached: P(the node is accepted), the product along its path.
    """

    paths: tuple[Node, ...]
    reached: tuple[float, ...]

    @property
    def size(self) -> int:
        """Nodes, root included."""
        return 1 + len(self.paths)

    @property
    def depth(self) -> int:
        """Edges on the longest path: drafting passes of an autoregressive drafter."""
        return max(map(len, self.paths), default=0)

    @property
    def expected_tokens(self) -> float:
        """Tokens per step, bonus token included."""
        return 1.0 + sum(self.reached)

    def first(self, size: int) -> "RankedTree":
        """The tree of the first nodes, root included."""
        return RankedTree(self.paths[: size - 1], self.reached[: size - 1])

    def widths(self) -> tuple[int, ...]:
        """Nodes at depths 1, 2, ..."""
        return tuple(sum(len(path) == depth for path in self.paths) for depth in range(1, self.depth + 1))


def check_ranks(acceptance: Sequence[float]) -> None:
    """Raise ValueError unless the ranks' acceptances can be those of children that exclude one another."""
    if not acceptance or min(acceptance) < 0 or sum(acceptance) > 1 + 1e-9:
        raise ValueError(f"acceptances by rank must not be negative and sum to at most 1, found {list(acceptance)}")
    if any(later > earlier for earlier, later in itertools.pairwise(acceptance)):
        raise ValueError(f"acceptances must not increase with the rank, found {list(acceptance)}")


def best_tree(acceptance: Sequence[float], size: int, max_depth: int | None = None) -> RankedTree:
    """The tree of `size` nodes with the most expected tokens, of `draft_trees.best_tree`.

    Fewer nodes where the depth or the acceptances leave no more.

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
    ranks = [chance for chance in acceptance if chance > 0]
    depth = min(size - 1, size if max_depth is None else max_depth) if ranks else 0
    room = sum(min(size, len(ranks) ** level) for level in range(1, depth + 1))
    rates = np.tile(np.array(ranks), (depth, 1))
    tree = draft_trees.best_tree(rates, min(size - 1, room)) if depth else draft_trees.DraftTree(())
    return RankedTree(tree.nodes, tuple(tree.path_products(rates).tolist()) if depth else ())


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
    trees = [tree.first(n) for tree in whole for n in range(1, tree.size + 1)]
    sizes = np.array([(tree.size, tree.depth, tree.expected_tokens) for tree in trees])
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
    tree: RankedTree


def tree_row(acceptance: Sequence[float], size: int, max_depth: int | None = None) -> TreeRow:
    """The best tree of a size beside the chain."""
    tree = best_tree(acceptance, size, max_depth)
    chain = expected_tokens(acceptance[0], min(size - 1, max_depth or size))
    return TreeRow(tree.size, tree.depth, tree.expected_tokens, chain, tree.widths(), tree)
