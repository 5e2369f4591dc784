"""`--slo` and `--load` as text: every mistake is a message, none a guess."""

import math
import re
from typing import Any

from sim.errors import ScenarioError
from sim.scenario.slo import find_slo

_NAMES = ("ttft", "tpot", "e2el", "percentile")
#: What a load may be followed by, and the axis it belongs to.
UNITS = {"": None, "rps": "request_rate", "/s": "request_rate", "requests/s": "request_rate", "users": "concurrency"}


def parse_slo(text: str) -> Any:
    """The value of `slo:` that `ttft:2000,tpot:50,percentile:95` or a published name stands for.

    Raises:
        ValueError: neither; the message says what is allowed.
    """
    if ":" not in text:
        try:
            find_slo(text)
        except ScenarioError as error:
            raise ValueError(f"{error}; or limits such as ttft:2000,tpot:50") from None
        return text
    limits: dict[str, str | float] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition(":"))
        if name not in _NAMES or name in limits or not value:
            again = "stated twice" if name in limits else f"allowed: {', '.join(_NAMES)}, each with a value"
            raise ValueError(f"{part.strip()!r}: {again}")
        limits[name] = _number(value)
    return limits


def _number(text: str) -> float | str:
    """A number where it is one; durations such as `2 s` stay text."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_load(text: str) -> tuple[float, str | None]:
    """A load such as `40rps`, `40` or `200 users`, and the axis that its unit belongs to, if it has one.

    Raises:
        ValueError: no positive number, or an unknown unit.
    """
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-zA-Z/]*)\s*", text)
    unit = match[2] if match else ""
    try:
        load = float(match[1]) if match else math.nan
    except ValueError:
        load = math.nan
    if unit not in UNITS or not 0 < load < math.inf:
        raise ValueError(f"found {text!r}; allowed: a positive number, alone or with rps or users, such as 40rps")
    return load, UNITS[unit]
