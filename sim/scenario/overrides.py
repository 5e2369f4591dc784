"""One scenario laid over another: `extends`, `--set a.b=c` and the cells of a sweep.

Mappings merge, anything else replaces. Where both sides of a merge name a different `kind` (or `method`), the upper one
replaces the lower one whole: the fields of another kind would make no sense.
"""

from sim.errors import Problem, ScenarioError
from sim.scenario.defaults import SHORTHANDS
from sim.scenario.document import Mark, Node, Path, Source, from_plain
from sim.scenario.yaml_reader import read_yaml


def expand_shorthands(root: Node) -> Node:
    """Spell out `model: name` as `model: {target: name}`, keeping places."""
    items = dict(root.items)
    for section, field in SHORTHANDS.items():
        node = items.get(section)
        if node is not None and isinstance(node.value, str):
            items[section] = node.with_items({field: Node(node.value, node.mark, node.key_mark)})
    return root.with_items(items) if isinstance(root.value, dict) else root


def merge(lower: Node, upper: Node) -> Node:
    """`upper` laid over `lower`."""
    if not isinstance(lower.value, dict) or not isinstance(upper.value, dict) or _another_kind(lower, upper):
        return upper
    merged = dict(lower.value)
    for key, node in upper.value.items():
        merged[key] = merge(merged[key], node) if key in merged else node
    return upper.with_items(merged)


def _another_kind(lower: Node, upper: Node) -> bool:
    for tag in ("kind", "method"):
        old, new = lower.child(tag), upper.child(tag)
        if old is not None and new is not None and old.value != new.value:
            return True
    return False


def split_key(root: Node, key: str) -> Path:
    """A dotted key as steps; names that contain dots themselves (arms) win when they exist, `[0]` indexes a list."""
    steps: list[str | int] = []
    node: Node | None = root
    rest = key.replace("[", ".").replace("]", "").split(".")
    while rest:
        if steps == ["sweep", "vary"]:  # the keys of this mapping are dotted keys themselves
            return (*steps, ".".join(rest))
        length = next((n for n in range(len(rest), 1, -1) if node and ".".join(rest[:n]) in node.items), 1)
        word, rest = ".".join(rest[:length]), rest[length:]
        is_index = node is not None and isinstance(node.value, list) and word.isdecimal()
        steps.append(int(word) if is_index else word)
        node = node.child(steps[-1]) if node else None
    return tuple(steps)


def put(root: Node, path: Path, value: Node) -> Node:
    """A copy with `value` merged in at `path`; missing mappings on the way are made.

    Raises:
        ValueError: the path leads through a single value or outside a list.
    """
    if not path:
        return merge(root, value)
    step, rest = path[0], path[1:]
    if isinstance(root.value, list):
        child = root.child(step)
        if child is None:
            raise ValueError(f"the list has no element {step!r}; allowed: 0 to {len(root.value) - 1}")
        return Node([put(n, rest, value) if n is child else n for n in root.value], root.mark, root.key_mark)
    if not isinstance(root.value, dict) and root.value is not None:
        raise ValueError(f"{step!r} cannot be set below the value {root.value!r}")
    below = root.child(step) or Node(None, value.mark, value.key_mark)
    return Node({**root.items, str(step): put(below, rest, value)}, root.mark or value.mark, root.key_mark)


def apply_overrides(root: Node, overrides: tuple[str, ...]) -> tuple[Node, list[Problem]]:
    """Lay `a.b=c` arguments over a scenario, in order; values are YAML."""
    problems: list[Problem] = []
    for argument in overrides:
        key, equals, text = argument.partition("=")
        source = Source("--set", (argument.replace("\n", " "),), numbered=False)
        start, behind = Mark(source, 0, 0), Mark(source, 0, len(key) + 1)
        try:
            if not equals or not key.strip():
                raise ValueError("expected key=value, such as engine.max_num_seqs=64")
            value = from_plain(_value(text), behind)
            root = put(root, split_key(root, key.strip()), Node(value.value, behind, start))
            root = expand_shorthands(root)
        except ValueError as error:
            problems.append(start.problem(key.strip(), str(error)))
    return root, problems


def _value(text: str) -> object:
    try:
        node, problems = read_yaml(text.encode("utf-8", "replace"), "--set")
    except ScenarioError as error:
        node, problems = Node(None), list(error.problems)
    if problems:
        raise ValueError(problems[0].message)
    return node.plain()
