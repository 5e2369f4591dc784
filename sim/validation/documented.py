"""Settings that a row leaves out and the documents of its engine state: rows run with them are advisory, not scored."""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sim.calibration.tables import read_table

_COLUMNS = ("engine", "method", "k_or_tree", "settings", "drafter", "where")


class Documented(NamedTuple):
    """A documented setting; the first three are patterns of what rows say.

    Attributes:
        settings: number of drafts or shape of the tree, spelt as in tables.
        drafter: the draft model, spelt as in tables; "" where the row's own name will do.
        where: the document.
    """

    engine: str
    method: str
    k_or_tree: str
    settings: str
    drafter: str
    where: str


@lru_cache(maxsize=1)
def _all() -> tuple[Documented, ...]:
    table = read_table(Path(__file__).parent / "data" / "documented_settings.csv", _COLUMNS)
    return tuple(Documented(*key) for key in table.keys(_COLUMNS))


def documented(engine: str, method: str, k_or_tree: str) -> Documented | None:
    """The setting of a row that does not state it; None where no document is known."""
    stated = (engine.strip().lower(), method.strip().lower(), k_or_tree.strip().lower())
    return next(
        (one for one in _all() if all(re.fullmatch(p, text) for p, text in zip(one[:3], stated, strict=True))), None
    )
