"""Validation errors as problems that point at the scenario: what was found, what is allowed, the nearest spelling."""

from typing import Any

from pydantic_core import ErrorDetails

from sim.errors import Problem
from sim.scenario.document import Node, Path, problem_at
from sim.scenario.known_keys import allowed_keys, allowed_kinds, places_of
from sim.scenario.suggestions import did_you_mean, found, one_of

_TAGS = ("kind", "method")
#: Pydantic's error type -> what was expected, with the error's context filled in.
_EXPECTED = {
    "int_type": "a whole number", "float_type": "a number", "bool_type": "true or false", "string_type": "text",
    "int_from_float": "a whole number", "tuple_type": "a list", "dict_type": "a mapping", "model_type": "a mapping",
    "model_attributes_type": "a mapping", "greater_than": "above {gt}", "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}", "less_than_equal": "at most {le}", "finite_number": "a finite number",
    "string_pattern_mismatch": "letters, digits and . _ - (at most 80, the first no . or -)",
    "too_short": "at least {min_length} of them", "too_long": "at most {max_length} of them",
}  # fmt: skip


def problem_of(error: ErrorDetails, root: Node) -> Problem:
    """One pydantic error as a problem at its place in the scenario."""
    kind = error["type"]
    path = path_of(error, root)
    if kind == "missing":
        return problem_at(root, path, "missing")
    if kind == "extra_forbidden":
        return unknown_key(root, path)
    if kind == "union_tag_not_found":
        tag = _tag_name(error)
        return problem_at(root, (*path, tag), f"missing; {one_of(allowed_kinds(root.plain(), path, tag))}")
    if kind == "union_tag_invalid":
        words = _words(error["ctx"]["expected_tags"])
        return _choice(root, (*path, _tag_name(error)), error["ctx"]["tag"], words)
    if kind == "literal_error":
        return _choice(root, path, error["input"], _words(error["ctx"]["expected"]))
    return problem_at(root, path, _message(error), key=_is_key_error(error))


def unknown_key(root: Node, path: Path) -> Problem:
    """`unknown key; did you mean ...?`, pointing at the key."""
    key, allowed = str(path[-1]), allowed_keys(root.plain(), path[:-1])
    hint = did_you_mean(key, allowed)
    if not hint and (places := [place for place in places_of(key) if not _is_at(path, place)]):
        hint = f"; did you mean {' or '.join(places)}?"
    return problem_at(root, path, f"unknown key{hint or '; ' + one_of(allowed)}", key=True)


def _is_at(path: Path, place: str) -> bool:
    """Whether a key stands at this place already, where another kind may have it."""
    steps = place.split(".")
    return len(steps) == len(path) and all(step in (str(at), "<name>") for step, at in zip(steps, path, strict=True))


def path_of(error: ErrorDetails, root: Node) -> Path:
    """The error's location without the names of union members."""
    node: Node | None = root
    path: list[str | int] = []
    steps = [step for step in error["loc"] if step != "[key]"]
    entered = False
    for index, step in enumerate(steps):
        is_tag = not entered and node is not None and any(_scalar(node, tag) == step for tag in _TAGS)
        child = node.child(step) if node is not None else None
        last_missing = index == len(steps) - 1 and error["type"] == "missing"
        if is_tag or (child is None and not last_missing and node is not None and _is_union_name(step)):
            entered = True
            continue
        path.append(step)
        node, entered = child, False
    return tuple(path)


def _scalar(node: Node, key: str) -> object:
    child = node.child(key)
    return child.value if child is not None else None


def _is_union_name(step: str | int) -> bool:
    """Names pydantic puts in for members of unions that no tag of the data tells apart."""
    return isinstance(step, str) and (step in ("name", "inline") or step.startswith(("literal[", "function-")))


def _is_key_error(error: ErrorDetails) -> bool:
    return bool(error["loc"]) and error["loc"][-1] == "[key]"


def _message(error: ErrorDetails) -> str:
    if error["type"] in ("value_error", "assertion_error"):
        return str(error["ctx"]["error"])
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return f"found {found(error['input'])}: {error['msg'][:1].lower()}{error['msg'][1:]}"
    return f"found {found(error['input'])}; allowed: {expected.format(**error.get('ctx', {}))}"


def _choice(root: Node, path: Path, value: Any, words: list[str]) -> Problem:
    return problem_at(root, path, f"found {found(value)}; {one_of(words)}{did_you_mean(value, words)}")


def _tag_name(error: ErrorDetails) -> str:
    return str(error["ctx"]["discriminator"]).strip("'")


def _words(text: str) -> list[str]:
    """`'a', 'b' or 'c'` as a list."""
    return [word.strip(" '") for word in text.replace(" or ", ",").split(",")]
