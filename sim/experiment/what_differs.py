"""What tells two results folders apart before any number is looked at: code, and fields of the scenario."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sim.errors import ResultsError
from sim.experiment.results import Experiment
from sim.scenario.document import Node
from sim.scenario.yaml_reader import read_yaml

#: So many fields are named, each value with so many letters.
MOST_NAMED, MOST_LETTERS = 8, 40
_ABSENT = "absent"


def what_differs(base: Experiment, other: Experiment) -> str:
    """Code and fields of the resolved scenario that are not the same, with both values, as a clause.

    Raises:
        ResultsError: a resolved scenario cannot be read.
    """
    ours, theirs = (_sections(folder) for folder in (base, other))
    changed = [change for change in _changes(ours, theirs, "") if not change.startswith("name ")]
    more = [f"{len(changed) - MOST_NAMED} more fields"] if len(changed) > MOST_NAMED else []
    code = ["code of specsim"] if base.manifest.get("code") != other.manifest.get("code") else []
    if not (code or changed):
        return "same code and scenario"
    return f"differs from {base.run_dir} in {', '.join([*code, *changed[:MOST_NAMED], *more])}"


def _changes(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """`arms.k3.acceptance.rate (0.7, here 0.8)` for every field, or section that only one side has."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in dict.fromkeys([*ours, *theirs]):
            yield from _changes(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif ours != theirs:
        yield f"{path} ({_short(ours)}, here {_short(theirs)})"


def _short(value: Any) -> str:
    text = value if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def _sections(folder: Experiment) -> dict[str, Any]:
    path = folder.run_dir / "scenario.resolved.yaml"
    try:
        node: Node = read_yaml(path.read_bytes(), path.name)[0]
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror})") from error
    data: dict[str, Any] = node.plain()
    return data
