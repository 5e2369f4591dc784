"""Plain text for terminals: aligned columns, wrapped paragraphs, numbers for people. ASCII, at most 100 columns."""

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 100


def printable(text: object) -> str:
    """Text of a user without control and other unprintable characters, which a terminal may obey."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def bold(text: str, colour: bool) -> str:
    """A heading, in bold when the terminal is to be coloured."""
    return f"\x1b[1m{text}\x1b[0m" if colour else text


def number(value: float | None) -> str:
    """Three significant digits, never an exponent above 0.001; `-` for nothing."""
    if value is None:
        return "-"
    size = abs(value)
    if size < 1e-3:
        return "0" if size < 1e-12 else f"{value:.1e}"
    return f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3}f}"


def verified(rule: str, lossless: bool) -> str:
    """A verification rule and what it does to the output."""
    return f"{rule} (lossless)" if lossless else f"{rule} (NOT lossless: the output is not the target's)"


def count(value: float | None) -> str:
    """A whole number with commas; `-` for nothing."""
    return "-" if value is None else f"{value:,.0f}"


def band(value: float | None, low: float | None, high: float | None) -> str:
    """`1.68 (1.56-1.82)`; the bracket only when there is a band."""
    if value is None or low is None or high is None:
        return "-"
    return f"{value:.2f}" + (f" ({low:.2f}-{high:.2f})" if high > low else "")


def short(text: str, width: int) -> str:
    """A name cut to a width, with `~` for what is missing."""
    return text if len(text) <= width else text[: width - 1] + "~"


def labelled(label: str, text: str, width: int) -> Iterator[str]:
    """A label and a wrapped paragraph that starts at column `width`; a label that is too long stands alone."""
    hang = " " * width
    if len(label) >= width:
        yield label[:WIDTH]
        label = ""
    head = label.ljust(width)
    yield from textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=hang, break_on_hyphens=False)


def columns(rows: Sequence[Sequence[str]], indent: int = 0, left: int = 0, gap: int = 2) -> Iterator[str]:
    """Rows with every column as wide as its widest cell, the first `left` ones aligned to the left.

    Columns stand closer together when they would be too wide otherwise.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = 1 if indent + sum(widths) + gap * (len(widths) - 1) > WIDTH else gap
    for row in rows:
        first = [cell.ljust(width) for cell, width in zip(row[:left], widths, strict=False)]
        others = [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        yield " " * indent + (" " * gap).join([*first, *others])
