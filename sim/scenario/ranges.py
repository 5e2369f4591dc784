"""Values to try, written short: `1:512:log2` or `{min: 0.5, max: 0.9, num: 5}` instead of a list."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from sim.rng import Streams
from sim.spec import Spec

Scale = Literal["linear", "log", "log2"]
MAX_VALUES = 100_000


class ValueRange(Spec):
    """Values between two numbers, both included. As text: `min:max:scale:num`, such as `1:512:log2` or `0:1:linear:5`.

    Whole numbers stay whole when `min` and `max` are, and values that round to the same one count once.

    Attributes:
        scale: `linear`; `log`, the same ratio from one to the next; `log2`, powers of two between the ends.
        num: how many; needed unless the scale is `log2`, or `linear` between whole numbers (then every one of them).
        random: draw them at random (uniform on the scale) instead of evenly spaced.
    """

    min: float
    max: float
    scale: Scale = "linear"
    num: Annotated[int, Field(ge=1, le=MAX_VALUES)] | None = None
    random: bool = False

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max:g} lies below min {self.min:g}")
        if self.scale != "linear" and self.min <= 0:
            raise ValueError(f"a {self.scale} scale needs min above 0, found {self.min:g}")
        if self.num is None and (self.random or self.scale == "log" or not (self._whole or self.scale == "log2")):
            raise ValueError("num is missing: how many values?")
        if self.num is None and self.scale == "linear" and self.max - self.min >= MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values; state num")
        if self.scale == "log2" and (self.num is not None or self.random):
            raise ValueError("log2 means powers of two between the ends: no num, no random; use log for them")
        return self

    @property
    def _whole(self) -> bool:
        return self.min.is_integer() and self.max.is_integer()

    def values(self, key: str) -> list[int] | list[float]:
        """The values in order; random ones are drawn by `key`, so that two fields are independent."""
        if self.scale == "log2":
            powers = 2.0 ** np.arange(np.floor(np.log2(self.min)) + 1, np.ceil(np.log2(self.max)))
            points = np.concatenate(([self.min], powers, [self.max]))
        else:
            points = self._at(self._places(key))
        if not self._whole:
            return [float(f"{value:.6g}") for value in dict.fromkeys(points.tolist())]
        return list(dict.fromkeys(np.rint(points).astype(np.int64).tolist()))

    def _places(self, key: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        num = self.num if self.num is not None else int(self.max - self.min) + 1
        if self.random:
            return Streams(0).per_row(f"sweep/{key}", num)
        return np.linspace(0.0, 1.0, num)

    def _at(self, places: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        if self.scale == "log":
            return np.asarray(self.min * (self.max / self.min) ** places)
        return np.asarray(self.min + (self.max - self.min) * places)


def _parsed(value: object) -> object:
    """Text as the mapping it stands for; anything else as it is."""
    if not isinstance(value, str) or value.count(":") not in (1, 2, 3):
        return value
    low, high, *more = value.split(":")
    fields: dict[str, object] = {"min": _number(low), "max": _number(high)}
    fields |= {"scale": more[0]} if more else {}
    fields |= {"num": _number(more[1])} if len(more) == 2 else {}
    return fields


def _number(text: str) -> object:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _as_floats(fields: object) -> object:
    if not isinstance(fields, Mapping):
        return fields
    ends = ("min", "max")
    return {key: float(v) if key in ends and isinstance(v, int) else v for key, v in fields.items()}


def expand(vary: object) -> object:
    """Every range replaced by its values; what is not a range, or a wrong one, is left for the next validator."""
    if not isinstance(vary, Mapping):
        return vary
    return {key: _expanded(value, str(key)) for key, value in vary.items()}


def _expanded(value: object, key: str) -> object:
    fields = _as_floats(_parsed(value))
    if not isinstance(fields, Mapping):
        return value
    try:
        return ValueRange.model_validate(fields).values(key)
    except ValidationError:
        return value


def _checked(value: object) -> object:
    """A list as a tuple; a range that is still here is wrong, and says why."""
    if isinstance(value, list):
        return tuple(value)
    fields = _as_floats(_parsed(value))
    if isinstance(fields, Mapping):
        ValueRange.model_validate(fields)
    if isinstance(value, str):
        raise ValueError(f"found {value!r}; allowed: a list, or a range such as 1:512:log2")
    return value


#: The values of one varied field.
Values = Annotated[
    tuple[Any, ...],
    Field(min_length=1),
    BeforeValidator(_checked),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {}, "minItems": 1},
                {"type": "string", "pattern": r"^[^:]+(:[^:]+){1,3}$"},
                ValueRange.model_json_schema(),
            ]
        }
    ),
]
