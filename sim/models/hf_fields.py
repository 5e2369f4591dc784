"""Typed look-ups in a Hugging Face `config.json` that collect every problem instead of stopping at the first."""

from collections.abc import Mapping
from typing import Any


class Fields:
    """A configuration being read.

    Attributes:
        problems: what was wrong so far, as (key, message).
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.problems: list[tuple[str, str]] = []

    def complain(self, key: str, message: str) -> None:
        """Record a problem, once."""
        if (key, message) not in self.problems:
            self.problems.append((key, message))

    @property
    def model_type(self) -> str:
        """The family, such as `qwen3_moe`; "" when the file does not say."""
        return str(self._values.get("model_type") or "").lower()

    def value(self, key: str) -> object:
        """The raw value, None when absent."""
        return self._values.get(key)

    def present(self, key: str) -> bool:
        """Whether the key is there with a value that means something."""
        return self._values.get(key) not in (None, False, 0, [], {}, "")

    def count(self, *keys: str) -> int:
        """A positive whole number under the first key that is there; 1 after complaining."""
        for key in keys:
            if self._values.get(key) is not None:
                return self._whole(key, least=1)
        self.complain(keys[0], "missing: a Hugging Face config.json of a decoder has it")
        return 1

    def optional(self, default: int, *keys: str) -> int:
        """The same where absence or null means `default`, and zero is fine."""
        for key in keys:
            if self._values.get(key) is not None:
                return self._whole(key, least=0)
        return default

    def _whole(self, key: str, least: int) -> int:
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.complain(key, f"expected a whole number of at least {least}, found {value!r}")
            return 1
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false; `default` where absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            self.complain(key, f"expected true or false, found {value!r}")
        return value if isinstance(value, bool) else default

    def numbers(self, key: str) -> frozenset[int]:
        """A list of whole numbers; empty where absent."""
        return frozenset(item for item in self._list(key) if isinstance(item, int))

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words; empty where absent."""
        return tuple(str(item) for item in self._list(key))

    def _list(self, key: str) -> list[object]:
        value = self._values.get(key)
        if value is not None and not isinstance(value, list):
            self.complain(key, f"expected a list, found {value!r}")
        return value if isinstance(value, list) else []
