"""The maximum of memory time and compute time, and the sum type that op groups return."""

import math
from typing import NamedTuple


class Terms(NamedTuple):
    """Seconds of an op group, and what moving bytes and computing would take alone."""

    seconds: float
    memory_s: float
    compute_s: float


def smooth_max(a: float, b: float, p: float | None) -> float:
    """(a^p + b^p)^(1/p) for non-negative a and b; the hard maximum for p = None. Never below max(a, b)."""
    high, low = (a, b) if a >= b else (b, a)
    if p is None or low == 0.0:
        return high
    ratio: float = (low / high) ** p
    return high * math.pow(1.0 + ratio, 1.0 / p)
