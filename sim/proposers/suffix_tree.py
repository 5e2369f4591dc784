"""A suffix tree that counts: how often every string of up to `max_depth` tokens occurred, and what followed most often.

Nodes are made only for strings that occur twice; a string that occurred once is a leaf that points into the text. The
counts, and so the drafts, are those of ArcticInference's `csrc/suffix_decoding/suffix_tree.cc` (commit 0a11e6a).
"""

from collections.abc import Sequence

#: Stands in the text after the end of every sequence; no token id.
_END = -1


class Node:
    """A string of tokens.

    Attributes:
        count: how often it occurs.
        where: index into the text of the token after its first occurrence.
        children: the strings that are one token longer; None for a leaf, whose continuation is read from the text.
        best: the child that occurs most often; of equals the one that came to it first (the engine's order among
            equals is that of a hash table). None without children.
    """

    __slots__ = ("best", "children", "count", "where")

    def __init__(self, where: int) -> None:
        self.count, self.where = 1, where
        self.children: dict[int, Node] | None = None
        self.best: Node | None = None


class SuffixTree:
    """Substrings of one or more sequences, up to a depth.

    Args:
        max_depth: longest string, in tokens: a match and its continuation together.
    """

    def __init__(self, max_depth: int) -> None:
        self._depth = max_depth
        self._root = Node(0)
        self._root.children = {}
        self._text: list[int] = []
        self._ranges: list[tuple[int, int]] = []
        self._start = 0
        #: active[m - 1]: the string of the last m tokens, for all m for which it occurs more than once.
        self.active: list[Node] = []

    @property
    def num_sequences(self) -> int:
        """Sequences that have ended and are not removed."""
        return len(self._ranges)

    @property
    def num_current_tokens(self) -> int:
        """Tokens of the sequence that is being written."""
        return len(self._text) - self._start

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the current sequence."""
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Append a token to the current sequence: all its suffixes grow by it."""
        self._text.append(token)
        after, grown = len(self._text), []
        for depth, node in enumerate([self._root, *self.active], start=1):
            if depth > self._depth:
                break
            if node.children is None:
                node.children = {}
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = Node(after)
            else:
                child.count += 1
                if child.children is None and depth < self._depth:
                    self._open(child)
                grown.append(child)
            if node.best is None or child.count > node.best.count:
                node.best = child
        self.active = grown

    def _open(self, leaf: Node) -> None:
        """A string occurs a second time: its first continuation becomes a node."""
        leaf.children = {}
        token = self._text[leaf.where]
        if token != _END:
            leaf.children[token] = leaf.best = Node(leaf.where + 1)

    def end_sequence(self) -> None:
        """The current sequence is complete; the next token starts another one."""
        self._ranges.append((self._start, len(self._text)))
        self._text.append(_END)
        self._start, self.active = len(self._text), []

    def remove_oldest(self) -> None:
        """Forget the sequence that ended first (FIFO eviction)."""
        begin, end = self._ranges.pop(0)
        for start in range(begin, end):
            self._forget(start, min(end, start + self._depth))

    def _forget(self, start: int, end: int) -> None:
        node = self._root
        for token in self._text[start:end]:
            child = (node.children or {}).get(token)
            if child is None or node.children is None:
                return
            child.count -= 1
            if not child.count:
                del node.children[token]
            if node.best is child:
                node.best = max(node.children.values(), key=_count, default=None)
            if not child.count:
                return
            node = child

    def find(self, pattern: Sequence[int]) -> tuple[Node, int] | None:
        """The node of a string, and how many of its tokens lie in the text behind a leaf; None: it does not occur."""
        node = self._root
        for place, token in enumerate(pattern):
            if node.children is None:
                rest = list(pattern[place:])
                same = self._text[node.where : node.where + len(rest)] == rest
                return (node, len(rest)) if same else None
            child = node.children.get(token)
            if child is None:
                return None
            node = child
        return node, 0

    def path(self, node: Node, skipped: int, depth: int, limit: int, least: float = 0.0) -> tuple[list[int], float]:
        """The most frequent continuation of a string.

        Args:
            node: of the string, as `find` gives it.
            skipped: how many tokens of the string lie in the text behind a leaf.
            depth: its length.
            limit: most tokens.
            least: stop where the estimated probability of the path falls below it.

        Returns:
            The tokens, and their score: the sum of the probabilities of the path up to each of them.
        """
        tokens: list[int] = []
        probability, score = 1.0, 0.0
        limit = min(limit, self._depth - depth)
        while len(tokens) < limit and node.children is not None:
            child = node.best
            if child is None:
                return tokens, score
            probability *= child.count / node.count
            if probability < least:
                return tokens, score
            tokens.append(self._text[child.where - 1])
            score += probability
            node = child
        behind = self._text[node.where + skipped : node.where + skipped + limit - len(tokens)]
        if _END in behind:
            behind = behind[: behind.index(_END)]
        return tokens + behind, score + probability * len(behind)


def _count(node: Node) -> int:
    return node.count
