"""Files that a scenario names: copied into the results folder, so that the resolved scenario runs again from there."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.errors import ScenarioError
from sim.experiment.store import RunFolder
from sim.scenario.dump import plain_data
from sim.scenario.schema import Scenario

#: Fields whose value may be the name of a file.
FILE_KEYS = frozenset({"trace", "path", "target", "model", "profile", "text", "datastore"})
_FOLDER = "inputs"


def copy_inputs(scenario: Scenario, base_dir: Path, folder: RunFolder) -> tuple[Scenario, Path]:
    """Copy every file that the scenario names into `inputs/` and name the copies instead.

    Copies are called after their content, so that the same data under another name give the same cell ids.

    Returns:
        The scenario and the folder that its file names now start from; both unchanged when it names no file.

    Raises:
        ScenarioError: a file cannot be read.
        StorageError: a copy cannot be written.
    """
    data = plain_data(scenario)
    names = sorted({value for value in _file_names(data, "") if _is_file(base_dir, value)})
    if not names:
        return scenario, base_dir
    copies = {name: _copy(base_dir / name, folder) for name in names}
    return Scenario.model_validate(_renamed(data, "", copies)), folder.path


def _file_names(data: Any, key: str) -> Iterator[str]:
    """Every text under a key that may name a file; a varied `a.b.trace` counts as `trace`."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _file_names(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from _file_names(value, key)
    elif isinstance(data, str) and _may_name_file(key):
        yield data


def _may_name_file(key: str) -> bool:
    return key.rpartition(".")[2] in FILE_KEYS


def _is_file(base_dir: Path, name: str) -> bool:
    """Names without a dot or slash are ids of the catalogue, whatever lies in the folder."""
    try:
        return ("." in name or "/" in name) and (base_dir / name).is_file()
    except (OSError, ValueError):
        return False


def _copy(source: Path, folder: RunFolder) -> str:
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ScenarioError(f"{source}: cannot be read ({error.strerror})") from error
    prefix = hashlib.sha256(content).hexdigest()[:8] + "-"
    relative = f"{_FOLDER}/{prefix}{source.name.removeprefix(prefix)}"
    folder.write(relative, content)
    return relative


def _renamed(data: Any, key: str, names: dict[str, str]) -> Any:
    if isinstance(data, dict):
        return {name: _renamed(value, name, names) for name, value in data.items()}
    if isinstance(data, list):
        return [_renamed(value, key, names) for value in data]
    return names.get(data, data) if isinstance(data, str) and _may_name_file(key) else data
