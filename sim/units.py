"""Quantities with units: the only place that knows prefixes.

A field's type says in which unit its value is *stored*; a bare number is in that unit, a string may carry any unit of
the same dimension (`2 s`, `80 GiB`, `3.35 TB/s`, `8k`). Values are stored in the unit of the field, so that a resolved
scenario reads back to the same bits. Decimal (GB) and binary (GiB) prefixes are distinct; bits are refused.
"""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_]*)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ/%]*)\s*$")
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

#: dimension -> unit -> size in the base unit (seconds, bytes, bytes/s, FLOP/s, 1/s, tokens)
UNITS: dict[str, dict[str, float]] = {
    "time": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600},
    "bytes": {f"{p}B": float(f) for p, f in {**_DECIMAL, **_BINARY}.items()},
    "bandwidth": {f"{p}B/s": float(f) for p, f in {**_DECIMAL, **_BINARY}.items()},
    "compute": {f"{p}{name}": float(f) for p, f in _DECIMAL.items() for name in ("FLOP/s", "FLOPS")},
    "rate": {"/s": 1, "rps": 1, "req/s": 1, "/min": 1 / 60, "rpm": 1 / 60},
    "count": {"": 1, "k": 10**3, "K": 10**3, "M": 10**6},
}


def parse_quantity(value: object, dimension: str, unit: str) -> float:
    """A number or a string with a unit, as a float in `unit`.

    Raises:
        ValueError: not a number, unknown unit, another dimension, NaN or infinite. The message says what is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected {_example(dimension, unit)}, found {value!r}")
    if isinstance(value, int | float):
        if isinstance(value, int) and abs(value) >= 2**1023:  # float() would raise OverflowError
            raise ValueError("expected a finite number, found a whole number of over 300 digits")
        return _finite(float(value), value)
    match = _NUMBER.match(value)
    if match is None:
        raise ValueError(f"expected {_example(dimension, unit)}, found {value!r}")
    number, suffix = _finite(float(match[1].replace("_", "")), value), match[2]
    if suffix == "" and dimension != "count":
        raise ValueError(f"{value!r} is text without a unit: expected {_example(dimension, unit)}")
    if suffix not in UNITS[dimension]:
        raise ValueError(f"unknown unit {suffix!r} in {value!r}; allowed: {', '.join(_allowed(dimension))}")
    return _convert(number, UNITS[dimension][suffix], UNITS[dimension][unit])


def _convert(number: float, source: float, target: float) -> float:
    """Exact where the ratio of the units is a whole number either way (always, for the units above)."""
    return number * (source / target) if source >= target else number / round(target / source)


def _finite(number: float, found: object) -> float:
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {found!r}")
    return number


def _allowed(dimension: str) -> list[str]:
    return [unit for unit in UNITS[dimension] if unit]


def _example(dimension: str, unit: str) -> str:
    examples = {
        "time": "a duration such as `20 ms` or `2 s`",
        "bytes": "a size such as `80 GB` or `80 GiB`",
        "bandwidth": "a bandwidth such as `3.35 TB/s`",
        "compute": "a rate such as `989 TFLOP/s`",
        "rate": "a rate such as `4` or `4 /s`",
        "count": "a count such as `8192` or `8k`",
    }
    bare = f"; a bare number is in {unit}" if unit else ""
    return examples[dimension] + bare


def parse_count(value: object) -> int:
    """A whole number; `8k` is 8000. Raises ValueError for fractions and other types."""
    number = parse_quantity(value, "count", "")
    if number != int(number):
        raise ValueError(f"expected a whole number, found {value!r}")
    return int(number)


def _quantity(dimension: str, unit: str, base: Any) -> Any:
    def parse(value: object) -> float:
        number = parse_quantity(value, dimension, unit)
        return int(number) if base is int else number

    schema = {
        "anyOf": [{"type": "integer" if base is int else "number"}, {"type": "string"}],
        "description": _example(dimension, unit),
    }
    return (BeforeValidator(parse), WithJsonSchema(schema))


def _needs_unit(dimension: str, unit: str, least: float) -> BeforeValidator:
    """Refuse bare numbers too small to be in base units: `80` for 80 GB."""

    def check(value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < abs(value) < least:
            raise ValueError(f"{value!r} has no unit: expected {_example(dimension, unit)}")
        return value

    return BeforeValidator(check)


_positive, _non_negative = Field(gt=0), Field(ge=0)

Milliseconds = Annotated[float, *_quantity("time", "ms", float), _non_negative]
Microseconds = Annotated[float, *_quantity("time", "us", float), _non_negative]
Nanoseconds = Annotated[float, *_quantity("time", "ns", float), _non_negative]
Seconds = Annotated[float, *_quantity("time", "s", float), _non_negative]
PerSecond = Annotated[float, *_quantity("rate", "/s", float), _positive]
Bytes = Annotated[int, *_quantity("bytes", "B", int), _positive, _needs_unit("bytes", "bytes", 1e6)]
BytesPerS = Annotated[float, *_quantity("bandwidth", "B/s", float), _positive, _needs_unit("bandwidth", "B/s", 1e6)]
FlopPerS = Annotated[
    float, *_quantity("compute", "FLOP/s", float), _non_negative, _needs_unit("compute", "FLOP/s", 1e9)
]
Count = Annotated[
    int, BeforeValidator(parse_count), WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})
]
PositiveCount = Annotated[Count, _positive]
NonNegative = Annotated[float, _non_negative]
Probability = Annotated[float, Field(ge=0, le=1)]


def format_bytes(size: float) -> str:
    """GiB with two decimals, the unit engines print: `51.63 GiB`."""
    return f"{size / 2**30:.2f} GiB"
