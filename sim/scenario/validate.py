"""From positioned data to a `Scenario`, or to every problem there is: of single values and between values."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sim.errors import Problem
from sim.scenario.document import Node, Path, problem_at
from sim.scenario.problems import path_of, problem_of
from sim.scenario.schema import Scenario

#: Stand-ins for broken required sections, so that what does not depend on them can still be checked.
_PLACEHOLDERS: dict[str, object] = {"hardware": "placeholder", "model": "placeholder", "arms": {"plain": {}}}
#: Complaints that only say that another field is wrong.
_FOLLOW_UPS = ("default_factory_not_called",)


def validate(root: Node) -> tuple[Scenario | None, list[Problem]]:
    """The scenario if all single values are right, and the problems if not."""
    if not isinstance(root.value, dict):
        return None, [problem_at(root, (), "expected a mapping with at least model, hardware and arms")]
    scenario, errors = _try(root)
    return scenario, [problem_of(error, root) for error in errors]


def without_broken_parts(root: Node) -> tuple[Scenario | None, frozenset[str], frozenset[str]]:
    """A scenario from what can be used of a broken one, for finding further problems.

    A broken arm becomes a plain one, a broken field of `hardware` or `model` is left out, and where that does not help
    the whole section is replaced.

    Returns:
        The scenario, the sections that had to be replaced (conclusions about those would be made up), and the sections
        in which anything was wrong.
    """
    if not isinstance(root.value, dict):
        return None, frozenset(), frozenset()
    root = _drop_unknown_keys(root)
    _, errors = _try(root)
    mended = _mend(root, [path_of(error, root) for error in errors])
    broken = frozenset(str(error["loc"][0]) for error in _errors(mended) if error["loc"])
    wrong = frozenset(str(error["loc"][0]) for error in errors if error["loc"])
    data = {key: value for key, value in mended.items() if key not in broken}
    data |= {key: value for key, value in _PLACEHOLDERS.items() if key in broken}
    try:
        return Scenario.model_validate(data), broken, wrong
    except ValidationError:
        return None, broken, wrong


def _mend(root: Node, paths: list[Path]) -> dict[str, Any]:
    """Plain data with the broken places of `arms`, `hardware` and `model` replaced by nothing in particular."""
    data: dict[str, Any] = root.plain()
    for path in paths:
        section, *rest = path or ("",)
        if section == "arms" and rest and isinstance(data["arms"], dict):
            data["arms"][rest[0]] = {}
        elif section in ("hardware", "model") and rest and isinstance(data[section], dict):
            data[section].pop(rest[0], None)
    return data


def _drop_unknown_keys(root: Node) -> Node:
    _, errors = _try(root)
    for path in sorted((path_of(error, root) for error in errors if error["type"] == "extra_forbidden"), key=len):
        root = root.without(path)
    return root


def _try(root: Node) -> tuple[Scenario | None, list[ErrorDetails]]:
    try:
        return Scenario.model_validate(root.plain()), []
    except ValidationError as error:
        return None, _real(error)


def _errors(data: dict[str, Any]) -> list[ErrorDetails]:
    try:
        Scenario.model_validate(data)
    except ValidationError as error:
        return _real(error)
    return []


def _real(error: ValidationError) -> list[ErrorDetails]:
    return [wrong for wrong in error.errors(include_url=False) if wrong["type"] not in _FOLLOW_UPS]
