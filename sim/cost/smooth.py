"""The maximum of memory time and compute time, and the sum type that op groups return.

The functions take a number or a numpy array with an entry per row of a table, so that calibration prices whole tables
with the very equations that price a step. Types say `float` throughout: that is what a server passes.
"""

import math
from typing import NamedTuple

import numpy as np


class Terms(NamedTuple):
    """Seconds of an op group, and what moving bytes and computing would take alone."""

    seconds: float
    memory_s: float
    compute_s: float


def smooth_max(a: float, b: float, p: float | None) -> float:
    """(a^p + b^p)^(1/p) for non-negative a and b; the hard maximum for p = None. Never below max(a, b)."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _smooth_max_rows(a, b, p)
    high, low = (a, b) if a >= b else (b, a)
    if p is None or low == 0.0:
        return high
    ratio: float = (low / high) ** p
    return high * math.pow(1.0 + ratio, 1.0 / p)


def _smooth_max_rows(a: float, b: float, p: float | None) -> float:
    high = np.maximum(a, b)
    if p is None:
        return high  # type: ignore[no-any-return]
    ratio = np.minimum(a, b) / np.where(high > 0.0, high, 1.0)
    return high * (1.0 + ratio**p) ** (1.0 / p)  # type: ignore[no-any-return]


def larger(a: float, b: float) -> float:
    """The hard maximum."""
    try:
        return a if a >= b else b
    except ValueError:  # arrays have no truth value; asking for their type first would slow down every step
        return np.maximum(a, b)  # type: ignore[no-any-return]


def smaller(a: float, b: float) -> float:
    """The hard minimum."""
    try:
        return a if a <= b else b
    except ValueError:
        return np.minimum(a, b)  # type: ignore[no-any-return]


def round_up(a: float) -> float:
    """The next whole number; rounding errors of a quotient do not make one more."""
    return np.ceil(a - 1e-9) if isinstance(a, np.ndarray) else math.ceil(a - 1e-9)


def doublings(a: float) -> float:
    """log2(1 + a)."""
    return np.log2(1.0 + a) if isinstance(a, np.ndarray) else math.log2(1.0 + a)
