"""Named, counter-based random streams: every number belongs to (seed, replicate, stream name, row, position).

Philox with the key (seed + replicate, stream name) and the counter (row, position): drawing one stream never moves
another, and a longer row or more rows never change the numbers already there. So plain and speculative arms, other K
and other GPUs meet the same randomness. Variates are derived by inverse CDF from 53-bit uniforms.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Streams:
    """The random numbers of one replicate of one scenario.

    Args:
        seed: the scenario's seed, 0 <= seed < 2**64.
        replicate: index of the replication, 0 <= replicate < 2**32.
    """

    seed: int
    replicate: int = 0

    def _philox(self, name: str) -> np.random.Philox:
        digest = hashlib.sha256(f"{self.seed}/{self.replicate}/{name}".encode()).digest()
        return np.random.Philox(key=np.frombuffer(digest[:16], np.uint64))

    def per_row(self, name: str, num_rows: int) -> Floats:
        """One uniform in [0, 1) for each of rows 0..num_rows-1, shape (num_rows,)."""
        return np.random.Generator(self._philox(name)).random(num_rows)

    def per_position(self, name: str, lengths: Ints) -> Floats:
        """Uniforms for positions 0..lengths[r]-1 of every row r, rows one after another, shape (lengths.sum(),)."""
        bits = self._philox(name)
        generator = np.random.Generator(bits)
        state = bits.state
        counter = state["state"]["counter"]
        flat = np.empty(int(lengths.sum()))
        start = 0
        for row, length in enumerate(lengths.tolist()):
            counter[:] = (0, 0, row, 0)
            bits.state = state
            generator.random(out=flat[start : start + length])
            start += length
        return flat
