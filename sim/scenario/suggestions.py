"""Nearest spellings: `did you mean max_num_seqs?`."""

import difflib
from collections.abc import Collection, Iterable


def did_you_mean(found: object, allowed: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest allowed word, or the empty string."""
    words = {word.lower().replace("-", "_"): word for word in allowed}
    near = difflib.get_close_matches(str(found)[:80].lower().replace("-", "_"), list(words), n=1, cutoff=0.6)
    return f"; did you mean {words[near[0]]}?" if near else ""


def no_such_arm(asked: Iterable[str], arms: Collection[str]) -> list[str]:
    """`no such arm: X; there are A, B; did you mean A?` for every name asked for that is not among the arms."""
    return [
        f"no such arm: {name}; there are {', '.join(arms) or 'none'}{did_you_mean(name, arms)}"
        for name in asked
        if name not in arms
    ]


def one_of(allowed: Iterable[str], limit: int = 24) -> str:
    """`allowed: a, b, c`, cut after `limit` words."""
    words = list(allowed)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return f"allowed: {', '.join(words[:limit])}{more}"


def flow(value: object) -> str:
    """A value as YAML writes it on one line, strings without quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return found(value) if value is None or isinstance(value, bool) else str(value)


def found(value: object, width: int = 60) -> str:
    """What the user wrote, short enough for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= width else text[:width] + "..."
