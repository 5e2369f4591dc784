"""Token trees as engines spell them -> `tree` and `num_speculative_tokens`. Used by `pasted.py`.

vLLM: `speculative_token_tree`, the text of a list of tuples (`vllm/config/speculative.py`). SGLang: `server_args.py`,
`speculative_num_steps` (levels), `speculative_eagle_topk` (children per node and nodes expanded per level) and
`speculative_num_draft_tokens` (tokens verified, the root among them); a top-k of 1 is a chain. TensorRT-LLM and Medusa:
`medusa_choices`, a list of paths, whose number is K where it is not stated.
"""

import ast
from collections.abc import Mapping
from typing import NamedTuple

from sim.errors import SimError
from sim.scenario.document import Node, from_plain
from sim.scenario.suggestions import found

STEPS, TOP_K, VERIFIED = "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"
TOKEN_TREE, CHOICES = "speculative_token_tree", "medusa_choices"


class Spelled(NamedTuple):
    """A config in our words, and what there is to say: (key, message)."""

    items: dict[str, Node]
    problems: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


class _UnclearError(SimError):
    """Keys that do not fit together; the arguments are a key and a message."""


def spelled_out(items: Mapping[str, Node]) -> Spelled:
    """The config of a method that can draft trees, with the engines' keys replaced."""
    kept = {key: node for key, node in items.items() if key not in (STEPS, TOP_K, VERIFIED, TOKEN_TREE, CHOICES)}
    if len(kept) == len(items):
        return Spelled(dict(items))
    try:
        if any(key in items for key in (STEPS, TOP_K, VERIFIED)):
            return Spelled(kept | _from_sglang(items, kept))
        return _from_paths(TOKEN_TREE if TOKEN_TREE in items else CHOICES, items, kept)
    except _UnclearError as error:
        key, message = error.args
        anything = {"num_speculative_tokens": Node(1)}  # one complaint is enough
        return Spelled(anything | kept, problems=((key, message),))


def _from_sglang(items: Mapping[str, Node], kept: Mapping[str, Node]) -> dict[str, Node]:
    first = next(key for key in (STEPS, TOP_K, VERIFIED) if key in items)
    for key in ("num_speculative_tokens", "tree", TOKEN_TREE, CHOICES):
        if key in items:
            raise _UnclearError(first, f"contradicts {key}; allowed: one of the two spellings")
    steps = _count(items, STEPS, first)
    top_k = _count(items, TOP_K, first) if TOP_K in items else 1
    mark = items[first]
    if top_k == 1:
        if VERIFIED in items and _count(items, VERIFIED, first) != steps + 1:
            raise _UnclearError(VERIFIED, f"found {found(items[VERIFIED].value)}; with top-k 1 it is {STEPS} + 1")
        return {"num_speculative_tokens": Node(steps, mark.mark, mark.key_mark)}
    verified = _count(items, VERIFIED, first)
    tree = from_plain({"kind": "dynamic", "depth": steps, "top_k": top_k}, mark.mark)
    return {
        "num_speculative_tokens": Node(verified - 1, items[VERIFIED].mark, items[VERIFIED].key_mark),
        "tree": Node(tree.value, items[TOP_K].mark, items[TOP_K].key_mark),
    }


def _count(items: Mapping[str, Node], key: str, at: str) -> int:
    node = items.get(key)
    if node is None:
        raise _UnclearError(at, f"needs {key} beside it, as in SGLang")
    if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 1:
        raise _UnclearError(key, f"found {found(node.value)}; allowed: a whole number from 1 on")
    return node.value


def _from_paths(key: str, items: Mapping[str, Node], kept: dict[str, Node]) -> Spelled:
    node = items[key]
    nodes = _nodes(key, node)
    if nodes is None:
        return Spelled(kept)
    if "tree" in kept or (key == TOKEN_TREE and CHOICES in items):
        raise _UnclearError(key, f"contradicts {'tree' if 'tree' in kept else CHOICES}; allowed: one of the spellings")
    if key == CHOICES:
        kept = {"num_speculative_tokens": Node(len(nodes), node.mark, node.key_mark)} | kept
    if all(rank == 0 for path in nodes for rank in path):
        return Spelled(kept, notes=((key, "a chain: no effect"),))
    tree = from_plain({"kind": "nodes", "nodes": nodes}, node.mark)
    return Spelled({**kept, "tree": Node(tree.value, node.mark, node.key_mark)})


def _nodes(key: str, node: Node) -> list[list[int]] | None:
    """The paths, also in the text of a list as vLLM takes it; None for null."""
    written = node.plain()
    if written is None:
        return None
    try:
        paths = ast.literal_eval(written) if isinstance(written, str) else written
        nodes = [list(path) for path in paths]
    except (SyntaxError, TypeError, ValueError):
        nodes = []
    if not nodes or not all(isinstance(rank, int) for path in nodes for rank in path):
        raise _UnclearError(key, "expected a list of paths, such as '[(0,), (1,), (0, 0)]'")
    return nodes
