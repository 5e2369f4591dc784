"""Everything wrong with a set of files, gathered before anything is refused: file, column, what, and the rows."""

from collections.abc import Iterable

from sim.errors import CalibrationError

#: Rows named per problem; the rest are counted.
_NAMED_ROWS = 10


class Problems:
    """Collects problems; rows with the same file, column and reason become one line."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[int]] = {}

    def add(self, file: str, column: str, reason: str, rows: Iterable[int] = ()) -> None:
        """Note that `column` of `file` (either may be empty) is wrong for `reason` in these rows (none: as a whole)."""
        self._rows.setdefault((file, column, reason), []).extend(rows)

    def lines(self) -> list[str]:
        """One line per problem."""
        return [_line(*key, sorted(set(rows))) for key, rows in self._rows.items()]

    def raise_if_any(self) -> None:
        """Refuse.

        Raises:
            CalibrationError: with every problem noted so far, one per line.
        """
        if self._rows:
            raise CalibrationError("\n".join(self.lines()))


def _line(file: str, column: str, reason: str, rows: list[int]) -> str:
    head = ": ".join(part for part in (file, column, reason) if part)
    if not rows:
        return head
    named = ", ".join(map(str, rows[:_NAMED_ROWS]))
    rest = f" and {len(rows) - _NAMED_ROWS} more" if len(rows) > _NAMED_ROWS else ""
    return f"{head} (row{'s' if len(rows) > 1 else ''} {named}{rest})"
