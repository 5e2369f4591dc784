"""Numbers on the command line: lists and ranges, with every mistake of a command reported at once."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from sim.errors import Problem, ScenarioError
from sim.units import parse_count

MAX_VALUES = 64
Value = TypeVar("Value")


def parse_counts(text: str, least: int, most: int) -> tuple[int, ...]:
    """Whole numbers as `1,8,64`, `8k` or `0:5` (both ends included), in ascending order without repetitions.

    Raises:
        ValueError: not such a list, numbers outside of `least`..`most`, or more than 64 of them.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, colon, last = (word.strip() for word in part.partition(":"))
        try:
            low = parse_count(_plain_number(first))
            high = parse_count(_plain_number(last)) if colon else low
        except ValueError as error:
            raise ValueError(f"{part.strip()!r}: {error}") from None
        if not least <= low <= high <= most:
            raise ValueError(f"{part.strip()!r}: allowed: {least} to {most:,}, ranges ascending")
        if high - low >= MAX_VALUES:
            raise ValueError(f"{part.strip()!r}: {high - low + 1:,} values; allowed: at most {MAX_VALUES}")
        numbers |= set(range(low, high + 1))
    if len(numbers) > MAX_VALUES:
        raise ValueError(f"{len(numbers)} values; allowed: at most {MAX_VALUES}")
    return tuple(sorted(numbers))


def parse_numbers(text: str, low: float, high: float) -> tuple[float, ...]:
    """Numbers as `0.5,0.7`, in the order given.

    Raises:
        ValueError: not such a list, a number outside of `low`..`high`, or more than 64 of them.
    """
    numbers = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            raise ValueError(f"{part.strip()!r}: expected a number such as 0.7, or a list 0.5,0.7") from None
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f"{part.strip()!r}: allowed: {low:g} to {high:g}")
        numbers.append(value)
    if len(numbers) > MAX_VALUES:
        raise ValueError(f"{len(numbers)} values; allowed: at most {MAX_VALUES}")
    return tuple(numbers)


def parse_share(text: str) -> float:
    """A share as `0.01` or `1%`.

    Raises:
        ValueError: not such a number, or not in 0 to below 1.
    """
    number, percent, _ = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"{text!r}: expected a share such as 1% or 0.01") from None
    if not 0 <= share < 1:
        raise ValueError(f"{text!r}: allowed: 0 to below 1")
    return share


def parse_factors(text: str) -> tuple[float, float]:
    """Factors as `0.8:1.25`.

    Raises:
        ValueError: not two numbers with 0 < low <= 1 <= high <= 100.
    """
    low, _, high = text.partition(":")
    try:
        factors = float(low), float(high)
    except ValueError:
        raise ValueError(f"{text!r}: expected two factors such as 0.8:1.25") from None
    if not 0 < factors[0] <= 1 <= factors[1] <= 100:
        raise ValueError(f"{text!r}: allowed: 0 < LOW <= 1 <= HIGH <= 100")
    return factors


def _plain_number(text: str) -> str:
    if not text:
        raise ValueError("expected a count such as `64` or `8k`, a list `1,8,64` or a range `0:5`")
    return text


class RangeType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """`1:1024`: two numbers."""

    name = "LOW:HIGH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """The two ends; a usage error when they are none."""
        if isinstance(value, tuple):
            return value
        try:
            low, high = map(float, str(value).split(":"))
        except ValueError:
            self.fail(f"found {value!r}; allowed: LOW:HIGH, such as 1:1024", param, ctx)
        return low, high


class Given:
    """Parses the options of one command and keeps what is wrong with them until all are read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def counts(self, option: str, text: str, least: int, most: int) -> tuple[int, ...]:
        """A list of whole numbers; one stand-in after a mistake."""
        return self._read(option, lambda: parse_counts(text, least, most), (least,))

    def count(self, option: str, text: str, least: int, most: int) -> int:
        """One whole number."""
        return self._one(option, self.counts(option, text, least, most))

    def numbers(self, option: str, text: str, low: float, high: float) -> tuple[float, ...]:
        """A list of numbers."""
        return self._read(option, lambda: parse_numbers(text, low, high), (low,))

    def number(self, option: str, text: str, low: float, high: float) -> float:
        """One number."""
        return self._one(option, self.numbers(option, text, low, high))

    def share(self, option: str, text: str) -> float:
        """A share of 0 to below 1, as `0.01` or `1%`."""
        return self._read(option, lambda: parse_share(text), 0.0)

    def factors(self, option: str, text: str) -> tuple[float, float]:
        """Two factors around 1, as `0.8:1.25`."""
        return self._read(option, lambda: parse_factors(text), (1.0, 1.0))

    def made(self, option: str, make: Callable[[], Value], stand_in: Value) -> Value:
        """What `make` returns; when it raises ScenarioError that is noted."""
        try:
            return make()
        except ScenarioError as error:
            self.wrong(option, str(error))
            return stand_in

    def wrong(self, option: str, message: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem("", option, message))

    def finish(self) -> None:
        """Raise ScenarioError with every mistake there was."""
        if self.problems:
            raise ScenarioError(self.problems)

    def _read(self, option: str, parse: Callable[[], Value], stand_in: Value) -> Value:
        try:
            return parse()
        except ValueError as error:
            self.wrong(option, str(error))
            return stand_in

    def _one(self, option: str, values: Sequence[Value]) -> Value:
        if len(values) > 1:
            self.wrong(option, f"{len(values)} values; allowed: one")
        return values[0]
