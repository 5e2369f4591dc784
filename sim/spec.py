"""What a user writes: frozen pydantic specs, and families of alternatives told apart by one tag.

`Spec` is the base of everything that appears in a scenario. A `Family` is an open set of alternatives (acceptance
models, cost models, ...): one file per alternative in one folder, registered with a decorator, found by scanning the
folder and the entry points `specsim.<family>` of installed packages. Annotating a field with `Annotated[Base, FAMILY]`
makes pydantic accept any registered alternative.
"""

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar, Union, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from sim.errors import SimError


class Spec(BaseModel):
    """Frozen, strict, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    #: Keys that the engine this mimics knows but the simulation does not use: accepted and reported, never swallowed.
    no_effect_keys: ClassVar[frozenset[str]] = frozenset()


T = TypeVar("T")
S = TypeVar("S", bound=Spec)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


#: A YAML list kept as a tuple, so that specs stay frozen and hashable.
Seq = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]


class Family(Generic[S]):
    """An open set of specs told apart by the field `tag`.

    Args:
        name: the family's name, which is also the entry-point group `specsim.<name>`.
        package: the folder to scan, such as `sim.acceptance`.
        tag: the field that tells the members apart; a `Literal` in every member.
    """

    def __init__(self, name: str, package: str, tag: str = "kind") -> None:
        self.name, self.package, self.tag = name, package, tag
        self._members: dict[str, type[S]] = {}
        self._discovered = False

    def register(self, cls: type[S]) -> type[S]:
        """Class decorator: make `cls` a member under every value of its tag."""
        for kind in get_args(cls.model_fields[self.tag].annotation):
            known = self._members.get(kind, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"{self.name} {self.tag} {kind!r} is already {known.__module__}.{known.__qualname__}")
            self._members[kind] = cls
        return cls

    def members(self) -> Mapping[str, type[S]]:
        """Every registered kind, sorted by name.

        Raises:
            SimError: an installed plug-in cannot be imported, or takes the name of another kind.
        """
        if not self._discovered:
            self._discovered = True
            path = importlib.import_module(self.package).__path__
            for module in sorted(info.name for info in pkgutil.iter_modules(path)):
                importlib.import_module(f"{self.package}.{module}")
            self._load_plug_ins()
        return dict(sorted(self._members.items()))

    def _load_plug_ins(self) -> None:
        group = f"specsim.{self.name}"
        for entry in importlib.metadata.entry_points(group=group):
            try:
                entry.load()
            except Exception as error:  # whatever a stranger's module does, say whose it is
                self._discovered = False
                raise SimError(f"plug-in {entry.name} = {entry.value} ({group}): {error!r}") from error

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        classes = tuple(dict.fromkeys(self.members().values()))
        if len(classes) == 1:
            return handler.generate_schema(classes[0])
        return handler.generate_schema(Annotated[Union[classes], Field(discriminator=self.tag)])  # noqa: UP007
