"""Finding scenario files, and reading one together with the files it extends."""

from pathlib import Path

import sim
from sim.errors import Problem, ScenarioError
from sim.scenario.document import Node, from_plain, problem_at
from sim.scenario.overrides import expand_shorthands, merge
from sim.scenario.suggestions import did_you_mean, found, one_of
from sim.scenario.yaml_reader import MAX_BYTES, read_yaml

MAX_EXTENDS = 10


def shipped_folder() -> Path:
    """The folder of shipped scenarios: inside an installed package, or beside it in a checkout."""
    package = Path(sim.__file__).parent
    installed = package / "scenarios"
    return installed if installed.is_dir() else package.parent / "scenarios"


def shipped_names() -> list[str]:
    """Names that `find_file` takes without a path, such as `quickstart` and `methods/eagle3`."""
    folder = shipped_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def find_file(name: str, base_dir: Path) -> Path:
    """The file of a scenario given by path or by the name of a shipped one.

    Raises:
        ScenarioError: there is no such file.
    """
    try:
        path = base_dir / name
        if path.is_file():
            return path
        if path.is_dir():
            raise ScenarioError(f"{name}: is a folder; expected a scenario file")
    except (OSError, ValueError):
        raise ScenarioError(f"{found(name)}: not a usable file name") from None
    names = shipped_names()
    if (shipped := name.removesuffix(".yaml")) in names:
        return shipped_folder() / f"{shipped}.yaml"
    raise ScenarioError(f"{name}: no such file, and no shipped scenario; {one_of(names)}{did_you_mean(name, names)}")


def read_bytes(path: Path, name: str) -> bytes:
    """A file's bytes, at most one more than is allowed.

    Raises:
        ScenarioError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError([Problem(name, "", f"cannot be read: {error.strerror}")]) from None


def read_scenario(path: Path, name: str) -> tuple[Node, list[Problem]]:
    """A scenario's data with everything it `extends` below it.

    Args:
        path: the file.
        name: how messages call it.

    Raises:
        ScenarioError: a file cannot be read to its end, or files extend one another in a circle.
    """
    return _read(path, name, ())


def _read(path: Path, name: str, above: tuple[Path, ...]) -> tuple[Node, list[Problem]]:
    root, problems = read_yaml(read_bytes(path, name), name)
    root = expand_shorthands(root)
    extends = root.child("extends")
    if extends is None:
        return root, problems
    root = root.without(("extends",))
    wrong = _refusal(extends, path, above)
    if wrong:
        return root, [*problems, problem_at(from_plain({}).with_items({"extends": extends}), ("extends",), wrong)]
    base = find_file(str(extends.value), path.parent)
    lower, below = _read(base, _name_of(base, path, name), (*above, path.resolve()))
    return merge(lower, root), [*problems, *below]


def _refusal(extends: Node, path: Path, above: tuple[Path, ...]) -> str:
    if not isinstance(extends.value, str) or not extends.value:
        return f"found {found(extends.plain())}; allowed: one local file name"
    if "://" in extends.value:
        return f"found {found(extends.value)}; allowed: a local file, never a URL"
    try:
        base = find_file(extends.value, path.parent)
    except ScenarioError as error:
        return str(error)
    if base.resolve() in (*above, path.resolve()):
        return f"found {found(extends.value)}: the files extend one another in a circle"
    return f"more than {MAX_EXTENDS} files extend one another" if len(above) >= MAX_EXTENDS else ""


def _name_of(base: Path, path: Path, name: str) -> str:
    """A base file as seen from where the user named the scenario."""
    try:
        return str(Path(name).parent / base.relative_to(path.parent))
    except ValueError:
        return base.name
