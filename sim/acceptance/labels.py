"""Trees that follow the drafter's confidence: a label per position, easy or hard, and steps over all label sequences.

The labels of the positions ahead decide the tree of a step, and through it where the step ends. So labels seen but not
consumed are not independent of the start of the next step, and rates per step need the stationary distribution of the
labels ahead: a Markov chain over their 2^depth sequences, solved here by iteration.
"""

from typing import NamedTuple

import numpy as np

from sim.acceptance.base import Floats, Ints
from sim.theory.draft_trees import GrownShape

#: The deepest tree whose label sequences are followed: 2^10 of them.
MAX_DEPTH = 10
_ITERATIONS = 400


def label_codes(easy: Ints, depth: int) -> Ints:
    """(T,) the labels of a position and of the depth - 1 after it, as a number: the first is the lowest bit."""
    code = np.zeros_like(easy)
    for ahead in range(depth):
        reach = max(len(easy) - ahead, 0)
        code[:reach] |= easy[ahead:] << ahead
    return code


def labels_of(code: int, depth: int) -> Ints:
    """(depth,) the labels of a sequence."""
    return (code >> np.arange(depth)) & 1


class LabelledTrees(NamedTuple):
    """The trees of all label sequences.

    Attributes:
        products: (N, sequences, nodes) chance that the target walks to each node, by kind of request.
        at_depth: (sequences, nodes, depth) 1 where a node has that depth.
    """

    products: Floats
    at_depth: Floats

    @classmethod
    def of(cls, shape: GrownShape, expected: Floats, rates: Floats) -> "LabelledTrees":
        """Grow them.

        Args:
            shape: grows the trees by `expected`.
            expected: (2, depth, ranks) what the drafter expects at hard and easy positions.
            rates: (N, 2, depth, ranks) what the target accepts there, by kind of request.
        """
        depths = np.arange(shape.depth)
        sequences = [labels_of(code, shape.depth) for code in range(2**shape.depth)]
        trees = [shape.tree(expected[labels, depths]) for labels in sequences]
        products = [tree.path_products(rates[:, labels, depths]) for tree, labels in zip(trees, sequences, strict=True)]
        lengths = np.array([[len(node) for node in tree.nodes] for tree in trees])
        return cls(np.stack(products, axis=1), (lengths[:, :, None] == 1 + depths).astype(np.float64))

    def survival(self, num_draft_tokens: int) -> Floats:
        """(N, depth) P(a step accepts at least i drafts) per verification step over a long output; first nodes only."""
        taken = slice(num_draft_tokens)
        by_labels = np.einsum("ncm,cmd->ncd", self.products[:, :, taken], self.at_depth[:, taken], optimize=True)
        pooled: Floats = np.einsum("nc,ncd->nd", _stationary(by_labels), by_labels)
        return pooled


def _stationary(survival: Floats) -> Floats:
    """(N, sequences) how often a step starts with each sequence of labels ahead."""
    num, codes, depth = survival.shape
    edges = np.concatenate((np.ones((num, codes, 1)), survival, np.zeros((num, codes, 1))), axis=2)
    exactly = edges[:, :, :-1] - edges[:, :, 1:]
    ahead = np.full((num, codes), 1.0 / codes)
    for _ in range(_ITERATIONS):
        after = np.zeros_like(ahead)
        for accepted in range(depth + 1):
            after += _moved(ahead * exactly[:, :, accepted], min(accepted + 1, depth))
        if float(np.abs(after - ahead).max()) < 1e-15:
            break
        ahead = after
    return after


def _moved(mass: Floats, positions: int) -> Floats:
    """Move on by some positions: that many labels are left behind, and as many new ones are as likely as not."""
    num, codes = mass.shape
    kept = mass.reshape(num, codes >> positions, 1 << positions).sum(axis=2)
    return np.tile(kept / (1 << positions), (1, 1 << positions))
