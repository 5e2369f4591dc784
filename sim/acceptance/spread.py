"""Requests differ: a rate per request, and averages over requests. Used by the kinds that accept `request_spread`.

A request's effect is one uniform u; all its rates are the quantiles u of their distributions (comonotone depths).
"""

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.acceptance.base import Floats
from sim.distributions import beta_quantile, normal_quantile
from sim.spec import Spec

#: Name of the stream with one uniform per request.
REQUEST_STREAM = "acceptance/request"


def logit(probability: Floats) -> Floats:
    """log(p / (1-p)); -inf and inf at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.log(probability) - np.log1p(-probability)


def logistic(value: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * value))


def normal_effect(uniform: Floats, sd: float) -> Floats:
    """Request effects N(0, sd) from uniforms in [0, 1)."""
    return sd * normal_quantile(uniform) if sd > 0 else np.zeros_like(uniform)


@lru_cache(maxsize=8)
def quantile_nodes(num_nodes: int = 128) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on (0, 1): averages over a request's uniform are `weights @ f(nodes)`."""
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def pooled_survival(survival: Floats, weights: Floats) -> Floats:
    """Survivals per verification step when requests of equal length differ.

    Args:
        survival: (Q, K) unconditional rates of each kind of request.
        weights: (Q,) share of the requests, summing to 1.

    Returns:
        (K,) rates over all steps: a request takes steps in proportion to 1 / (its tokens per step).
    """
    steps = weights / (1.0 + survival.sum(axis=1))
    pooled: Floats = steps @ survival / steps.sum()
    return pooled


class BetaSpread(Spec):
    """Rates vary over requests as Beta(rate x c, (1 - rate) x c), c = concentration: their mean over requests stays."""

    kind: Literal["beta"] = "beta"
    concentration: float = Field(gt=0, description="a + b of the Beta distribution; smaller = requests differ more")

    def rates(self, uniform: Floats, means: Floats) -> Floats:
        """(N, D) rates of N requests from their uniforms (N,) and the mean rates (D,)."""
        columns = [self._column(uniform, float(mean)) for mean in means]
        return np.stack(columns, axis=1)

    def _column(self, uniform: Floats, mean: float) -> Floats:
        a, b = mean * self.concentration, (1.0 - mean) * self.concentration
        if min(a, b) < 1e-9:  # all but every request has a rate of 0 or 1, and the quantiles underflow
            return np.full(len(uniform), round(mean), np.float64)
        return beta_quantile(uniform, a, b)


class LogitNormalSpread(Spec):
    """Logits of the rates shift by N(0, sd) per request, centred so that the mean over requests stays."""

    kind: Literal["logit_normal"] = "logit_normal"
    sd: float = Field(gt=0, le=20, description="standard deviation of the shift, in logits")

    def rates(self, uniform: Floats, means: Floats) -> Floats:
        """(N, D) rates of N requests from their uniforms (N,) and the mean rates (D,)."""
        shift = normal_effect(uniform, self.sd)
        return logistic(self._centres(means)[None, :] + shift[:, None])

    def _centres(self, means: Floats) -> Floats:
        """Logits whose average over requests is `means`, by bisection."""
        nodes, weights = quantile_nodes()
        shift = normal_effect(nodes, self.sd)
        low, high = np.full(len(means), -200.0), np.full(len(means), 200.0)
        for _ in range(80):
            middle = 0.5 * (low + high)
            too_high = weights @ logistic(middle[None, :] + shift[:, None]) > means
            low, high = np.where(too_high, low, middle), np.where(too_high, middle, high)
        return np.where(means <= 0, -np.inf, np.where(means >= 1, np.inf, 0.5 * (low + high)))


RequestSpread = Annotated[BetaSpread | LogitNormalSpread, Field(discriminator="kind")]
