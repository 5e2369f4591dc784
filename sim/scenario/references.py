"""`sweep.regret`: arms to measure K rules by, made from the arms that have one. Works on data before validation."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from sim.acceptance.base import ACCEPTANCE

_TABLE = "num_speculative_tokens_per_batch_size"
_K = "num_speculative_tokens"
Arms = dict[str, Any]


def fill_references(full: dict[str, Any]) -> None:
    """Add the oracle and every fixed K of each arm with a K rule, once per kind of drafting.

    K that the arm's acceptance does not know are left out, and with them the oracle, which would have to ask for them.
    Arms that are there already, under whatever name, are not made again. What is wrong is left for validation.
    """
    arms, sweep = full.get("arms"), full.get("sweep")
    if not (isinstance(arms, Mapping) and isinstance(sweep, Mapping) and sweep.get("regret") is True):
        return
    filled: Arms = dict(arms)
    known = [_identity(arm) for arm in filled.values() if isinstance(arm, Mapping)]
    for name, arm in arms.items():
        made = {end: one for end, one in _references(arm) if _identity(one) not in known}
        known += map(_identity, made.values())
        method = str(arm["speculative_config"].get("method")) if made else name
        prefix = name if any(f"{method}-{end}" in filled for end in made) else method
        for end, one in made.items():
            filled.setdefault(f"{prefix}-{end}", one)
    full["arms"] = filled


def _references(arm: Any) -> Iterator[tuple[str, Arms]]:
    """(end of the name, arm) of the oracle and of every fixed K; none for an arm without a K rule."""
    if not isinstance(arm, Mapping) or not isinstance(arm.get("speculative_config"), Mapping):
        return
    config, rule, k = arm["speculative_config"], arm.get("draft_length"), arm["speculative_config"].get(_K)
    changes = isinstance(rule, Mapping) and rule.get("kind") not in ("fixed", "oracle")
    if not isinstance(k, int) or not (changes or config.get(_TABLE)):
        return
    rest = {key: value for key, value in arm.items() if key != "draft_length"}
    fixed = {key: value for key, value in config.items() if key != _TABLE}
    sizes = _sizes(config.get("tree"), k)
    unknown = unknown_sizes(arm, sizes)
    if not unknown:
        yield "oracle", rest | {"speculative_config": fixed, "draft_length": {"kind": "oracle"}}
    for tokens in sizes:
        if tokens in unknown:
            continue
        yield f"k{tokens}", rest | {"speculative_config": fixed | {_K: tokens}, "draft_length": {"kind": "fixed"}}


def unknown_sizes(arm: Mapping[str, Any], sizes: Iterable[int]) -> frozenset[int]:
    """The K of which the arm's acceptance says nothing, as measurements at single K; what is wrong says nothing."""
    stated = [arm.get("acceptance"), *(arm.get("class_acceptance") or {}).values()]
    unknown = set[int]()
    for one in stated:
        spec = ACCEPTANCE.members().get(str(one.get("kind"))) if isinstance(one, Mapping) else None
        with contextlib.suppress(ValidationError):
            unknown |= set(spec.model_validate(one).missing_draft_tokens(sizes)) if spec else set()
    return frozenset(unknown)


def _sizes(tree: Any, k: int) -> range:
    """Every fixed K up to this one: a dynamic tree has a node per level at least, a written one all its nodes."""
    if not isinstance(tree, Mapping) or tree.get("kind") == "optimal":
        return range(1, k + 1)
    depth = tree.get("depth") if tree.get("kind") == "dynamic" else k
    return range(depth if isinstance(depth, int) else 1, k + 1)


def _identity(arm: Mapping[str, Any]) -> str:
    """Equal for arms that do the same: keys that are null or say `fixed` count as left out."""
    config = arm.get("speculative_config")
    given = {key: value for key, value in arm.items() if value}
    if isinstance(config, Mapping):
        given["speculative_config"] = {key: value for key, value in config.items() if value is not None}
    rule = given.get("draft_length")
    if isinstance(rule, Mapping):
        kept = {"kind": rule.get("kind")} if rule.get("kind") == "oracle" and not rule.get("per_request") else rule
        given["draft_length"] = kept
        if rule.get("kind") == "fixed":
            del given["draft_length"]
    return json.dumps(given, sort_keys=True, default=str)
