"""A folder of YAML facts, one file per entry, found by name. Used by the GPU and the model catalogue."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml
from pydantic import ValidationError

from sim.errors import Problem, ScenarioError
from sim.spec import Spec

S = TypeVar("S", bound=Spec)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def normalised(name: str) -> str:
    """Lower case, letters and digits only: `H100_SXM`, `h100 sxm` and `h100-sxm` are the same name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


class Catalogue(Generic[S]):
    """Entries of one spec; the id of an entry is its file name.

    Args:
        what: what an entry is called in messages, such as `GPU`.
        folder: where the YAML files lie.
        spec: what a file is read as.
    """

    def __init__(self, what: str, folder: Path, spec: type[S]) -> None:
        self._what, self._folder, self._spec = what, folder, spec
        self._loaded: dict[str, S] = {}
        self._ids: tuple[str, ...] = ()
        self._found: dict[str, S] = {}

    def ids(self) -> tuple[str, ...]:
        """Every id, sorted; the folder is read once."""
        self._ids = self._ids or tuple(sorted(path.stem for path in self._folder.glob("*.yaml")))
        return self._ids

    def load(self, entry_id: str) -> S:
        """The entry with exactly this id; each file is read once."""
        if entry_id not in self._loaded:
            text = self.text(entry_id)
            self._loaded[entry_id] = self._spec.model_validate(yaml.load(text, Loader=_LOADER))
        return self._loaded[entry_id]

    def text(self, entry_id: str) -> str:
        """The file of an entry, unparsed."""
        return (self._folder / f"{entry_id}.yaml").read_text(encoding="utf-8")

    def find(self, name: str) -> S:
        """The entry that `name` means.

        Case, `-`, `_`, `.` and spaces do not count. The beginning of an id is enough where only one id begins so.

        Raises:
            ScenarioError: no such entry (the nearest ids are named), or several.
        """
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> S:
        ids = self.ids()
        candidates = [i for i in ids if normalised(i) == normalised(name)] or [i for i in ids if _begins(i, name)]
        if len(candidates) == 1:
            return self.load(candidates[0])
        if candidates:
            raise ScenarioError(f"{self._what} {name!r} is ambiguous; did you mean one of {', '.join(candidates)}?")
        raise ScenarioError(f"unknown {self._what} {name!r}; {self._hint(name, ids)}")

    def _hint(self, name: str, ids: Sequence[str]) -> str:
        near = nearest_ids(name, ids)
        return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(ids)}"


def nearest_ids(name: str, ids: Sequence[str]) -> list[str]:
    """At most three ids spelt like `name`."""
    by_key = {normalised(entry_id): entry_id for entry_id in ids}
    return [by_key[key] for key in difflib.get_close_matches(normalised(name), by_key, n=3, cutoff=0.5)]


def read_entry(path: Path, what: str, spec: type[S]) -> S:
    """One file of a user's own, in the form of a catalogue's entries.

    Raises:
        ScenarioError: the file cannot be read, or is no such entry; every problem with its key.
    """
    try:
        return spec.model_validate(yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER))
    except OSError as error:
        raise ScenarioError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScenarioError(f"the {what} {path} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise ScenarioError(
            [Problem(str(path), ".".join(map(str, e["loc"])), e["msg"]) for e in error.errors()]
        ) from None


def _begins(entry_id: str, name: str) -> bool:
    """Whether `name` is the first words of the id: `h200` of `h200-sxm`, but not `b60` or `h20`."""
    words = entry_id.split("-")
    return normalised(name) in {normalised("".join(words[:n])) for n in range(1, len(words))}
