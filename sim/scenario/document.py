"""Plain data in which every key and value remembers where it was written, so that complaints can point at it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim.errors import Problem

Path = tuple[str | int, ...]
_EXCERPT_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Source:
    """A file or `--set` argument as lines.

    Attributes:
        name: how messages call it.
        numbered: whether messages state line and column; the excerpt is shown either way.
    """

    name: str
    lines: tuple[str, ...] = ()
    numbered: bool = True

    @classmethod
    def of(cls, name: str, text: str) -> "Source":
        """Split `text` where YAML breaks lines."""
        return cls(name, tuple(text.splitlines()))


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a source; `line` and `column` count from 0."""

    source: Source
    line: int
    column: int

    @property
    def where(self) -> str:
        """`file:line:column`, counted from 1."""
        return f"{self.source.name}:{self.line + 1}:{self.column + 1}" if self.source.numbered else self.source.name

    @property
    def excerpt(self) -> str:
        """The source line with a caret below the column; long lines are cut to a window around it."""
        if not 0 <= self.line < len(self.source.lines):
            return ""
        start = max(0, self.column - _EXCERPT_WIDTH // 2)
        line = self.source.lines[self.line][start : start + _EXCERPT_WIDTH].replace("\t", " ").rstrip()
        return f"  {line}\n  {' ' * (self.column - start)}^"

    def problem(self, key: str, message: str) -> Problem:
        """A complaint about this place."""
        return Problem(self.where, key, message, self.excerpt)


Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, mapping or sequence with its place.

    Attributes:
        value: scalars as they are; mappings and sequences of nodes.
        mark: where the value starts; None for data built in Python.
        key_mark: where its key starts, for values of a mapping.
    """

    value: "Scalar | dict[str, Node] | list[Node]"
    mark: Mark | None = None
    key_mark: Mark | None = None

    @property
    def items(self) -> "dict[str, Node]":
        """Children of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    def child(self, step: str | int) -> "Node | None":
        """The value under a key or index, if there is one."""
        if isinstance(self.value, dict):
            return self.value.get(str(step))
        if isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            return self.value[step]
        return None

    def find(self, path: Path) -> "Node | None":
        """The value at a path, if there is one."""
        node: Node | None = self
        for step in path:
            node = node.child(step) if node else None
        return node

    def plain(self) -> Any:
        """The data alone: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def with_items(self, items: "dict[str, Node]") -> "Node":
        """The same place with other children."""
        return replace(self, value=items)

    def without(self, path: Path) -> "Node":
        """A copy in which the key at `path` is gone; itself when there is no such key."""
        if not path or self.child(path[0]) is None or not isinstance(self.value, dict):
            return self
        key, rest = str(path[0]), path[1:]
        if rest:
            return self.with_items({**self.value, key: self.value[key].without(rest)})
        return self.with_items({name: node for name, node in self.value.items() if name != key})


def from_plain(data: object, mark: Mark | None = None) -> Node:
    """Wrap data built in Python; every node gets the same `mark`."""
    if isinstance(data, Mapping):
        return Node({str(key): from_plain(value, mark) for key, value in data.items()}, mark, mark)
    if isinstance(data, list | tuple):
        return Node([from_plain(value, mark) for value in data], mark, mark)
    return Node(data, mark, mark)  # type: ignore[arg-type]  # whatever it is, validation will say


def dotted(path: Sequence[str | int]) -> str:
    """`("workload", "classes", 0, "share")` as `workload.classes[0].share`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def mark_of(root: Node, path: Path, *, key: bool = False) -> Mark | None:
    """The place to point at for a path: its value (or key), else the nearest parent that was written down."""
    best, node = root.mark, root
    for depth, step in enumerate(path):
        child = node.child(step)
        if child is None:
            return node.key_mark or best
        node = child
        best = (child.key_mark if key and depth == len(path) - 1 else child.mark) or best
    return best


def problem_at(root: Node, path: Path, message: str, *, key: bool = False) -> Problem:
    """A complaint about the value (or, with `key`, the key) at `path`."""
    mark = mark_of(root, path, key=key)
    return mark.problem(dotted(path), message) if mark else Problem("", dotted(path), message)


def walk(root: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path, parents first."""
    yield path, root
    if isinstance(root.value, dict):
        for key, child in root.value.items():
            yield from walk(child, (*path, key))
    elif isinstance(root.value, list):
        for index, child in enumerate(root.value):
            yield from walk(child, (*path, index))
