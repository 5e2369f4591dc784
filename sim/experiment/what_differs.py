"""What tells two results folders apart before any number is looked at: code, and sections of the scenario."""

from typing import Any

from sim.errors import ResultsError
from sim.experiment.results import Experiment
from sim.scenario.document import Node
from sim.scenario.yaml_reader import read_yaml


def what_differs(base: Experiment, other: Experiment) -> str:
    """Code and sections of the resolved scenario that are not the same, as a clause.

    Raises:
        ResultsError: a resolved scenario cannot be read.
    """
    ours, theirs = (_sections(folder) for folder in (base, other))
    changed = [key for key in dict.fromkeys([*ours, *theirs]) if ours.get(key) != theirs.get(key) and key != "name"]
    code = ["code of specsim"] if base.manifest.get("code") != other.manifest.get("code") else []
    return (
        f"differs from {base.run_dir} in {', '.join([*code, *changed])}"
        if code or changed
        else "same code and scenario"
    )


def _sections(folder: Experiment) -> dict[str, Any]:
    path = folder.run_dir / "scenario.resolved.yaml"
    try:
        node: Node = read_yaml(path.read_bytes(), path.name)[0]
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror})") from error
    data: dict[str, Any] = node.plain()
    return data
