"""Verification steps that one request of finite length needs: exact mean and second moment.

The first token comes from prefill, so an output of L tokens leaves n = L - 1 for decoding. Steps emit X = 1..K+1
tokens, the last one cut at the end. Used as oracle for the server (Pollaczek-Khinchine with speculation) and reports.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.theory.tokens import emitted_distribution, expected_tokens, variance_of_tokens


class Moments(NamedTuple):
    """First two moments of a random count.

    Attributes:
        mean: E[N].
        second: E[N^2].
    """

    mean: float
    second: float

    @property
    def variance(self) -> float:
        """E[N^2] - E[N]^2."""
        return self.second - self.mean**2


def steps_of_output(emitted: NDArray[np.float64], output_tokens: int) -> Moments:
    """Exact moments of the verify steps of one request: N(i) = 1 + sum_j P(X=j) N(max(i-j, 0)), N(0) = 0.

    Args:
        emitted: (K+1,) P(a step emits j tokens) at index j - 1, see `emitted_distribution`.
        output_tokens: L >= 1, the first of which prefill produces.
    """
    width, decoded = len(emitted), output_tokens - 1
    mean, second = np.zeros(width + decoded), np.zeros(width + decoded)
    for i in range(width, width + decoded):  # index i stands for i - width + 1 remaining tokens, zeros before them
        before = slice(i - width, i)
        rest = float(emitted[::-1] @ mean[before])
        mean[i] = 1.0 + rest
        second[i] = 1.0 + 2.0 * rest + float(emitted[::-1] @ second[before])
    return Moments(float(mean[-1]), float(second[-1])) if decoded else Moments(0.0, 0.0)


def iid_steps_of_output(alpha: float, num_draft_tokens: int, output_tokens: int) -> Moments:
    """`steps_of_output` for one acceptance probability alpha and K drafts."""
    return steps_of_output(emitted_distribution(alpha, num_draft_tokens), output_tokens)


def renewal_steps(alpha: float, num_draft_tokens: int, output_tokens: int) -> float:
    """Renewal approximation of the mean, good to four digits from 31 decoded tokens on."""
    omega, variance = expected_tokens(alpha, num_draft_tokens), variance_of_tokens(alpha, num_draft_tokens)
    return (output_tokens - 1) / omega + (variance + omega**2) / (2 * omega**2) - 1 / (2 * omega)
