"""Which wrong input would explain measured deviations: least squares on their logarithms over factors.

Observations are y = ln(measured / simulated). Inputs are scaled by factors exp(theta); a simulator says how the
logarithms of what it predicts change with theta. One factor at a time, then the best pair, by Gauss-Newton steps whose
Jacobian is corrected with every simulation (Broyden, Math. Comp. 19, 1965).

Errors of observations are not known but for replicates, so each has a floor; where a fit leaves more than that, its
errors are stretched to what it leaves (chi^2 per degree of freedom), as in the Review of Particle Physics.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.metrics.statistics import Floats, Interval, t_quantile

#: Factor -> change of the logarithm of every observation, shape (N,).
Respond = Callable[[Mapping[str, float]], Floats]

#: Factors outside of this explain nothing: something else is wrong.
LIMITS = (0.2, 5.0)
#: A model is better by chance in one of twenty cases when chi^2 falls by this for a further factor.
SIGNIFICANT = 3.84
#: Sensitivities (d ln y / d ln factor) below this are noise.
NO_EFFECT = 0.02
#: Factors whose effects are this alike cannot be told apart whatever the noise.
_COLLINEAR = 0.98
_STEPS, _TOLERANCE = 4, 2e-3
#: Half-widths of logarithms beyond this mean that nothing is known.
_WIDEST = math.log(1000.0)


@dataclass(frozen=True)
class Observations:
    """What is to be explained.

    Attributes:
        logs: (N,) ln(measured / simulated).
        sigma: (N,) one-sigma errors of those.
        groups: (N,) which load test each belongs to: tests are independent, figures of one test are not.
    """

    logs: Floats
    sigma: Floats
    groups: Sequence[int]

    def chi2(self, left: Floats) -> float:
        """Sum of squares of what is left, in units of the errors."""
        return float(((left / self.sigma) ** 2).sum())


@dataclass(frozen=True)
class Explanation:
    """Factors on inputs, and what they leave unexplained.

    Attributes:
        factors: name -> value with its 95 % interval; the ends are None where there are too few load tests for one.
        chi2: of what is left.
        rms: root mean square of what is left, as a relative error.
        at_limit: the best value lies outside of `LIMITS`.
    """

    factors: Mapping[str, Interval]
    chi2: float
    rms: float
    at_limit: bool


@dataclass(frozen=True)
class Attribution:
    """The answer.

    Attributes:
        before: nothing changed.
        singles: one factor each, the best first; those without effect are not among them.
        pair: the best two, None with fewer than two that differ.
        without_effect: factors that these load tests say nothing about.
        alike: factors that explain it no worse than the best one, that one included; empty when none is needed.
        pair_needed: the pair explains significantly more than the best factor alone.
        best: what to believe: nothing, one factor, or two.
        explained: what the best leaves is within the errors of the observations, or a fifth of before.
        unseen: factor -> the largest deviation of it alone, as a share, that these tests would take for chance (95 %).
    """

    before: Explanation
    singles: Sequence[Explanation]
    pair: Explanation | None
    without_effect: Sequence[str]
    alike: Sequence[str]
    pair_needed: bool
    best: Explanation
    explained: bool
    unseen: Mapping[str, float]


def attribute(observed: Observations, jacobian: Mapping[str, Floats], respond: Respond) -> Attribution:
    """Find the factors that explain the observations.

    Args:
        observed: N >= 1 deviations.
        jacobian: factor -> (N,) d ln(simulated) / d ln(factor) at 1.
        respond: simulates with factors.
    """
    effective = [name for name, slopes in jacobian.items() if np.abs(slopes).max() > NO_EFFECT]
    before = _explanation(observed, {}, observed.logs)
    fits = [_fit(observed, [name], jacobian, respond) for name in effective]
    singles = sorted(fits, key=lambda fit: fit.chi2)
    chosen = _best_pair(observed, effective, jacobian)
    pair = _fit(observed, chosen, jacobian, respond) if chosen else None
    alike, pair_needed = list[str](), False
    if singles and _gain(observed, before, singles[0], 1) > SIGNIFICANT:
        alike = [name for fit in singles if _gain(observed, fit, singles[0], 1) < SIGNIFICANT for name in fit.factors]
    if singles and pair is not None and _gain(observed, singles[0], pair, 2) > SIGNIFICANT:
        pair_needed = True
        alike = alike or list(singles[0].factors)
    best = before if not alike else pair if pair_needed and pair is not None else singles[0]
    without_effect = [name for name in jacobian if name not in effective]
    explained = _explains(observed, before, best)
    stretch = _stretch(observed, best.chi2, len(best.factors))
    unseen = {name: _unseen(jacobian[name] / observed.sigma, stretch) for name in effective}
    return Attribution(before, singles, pair, without_effect, alike, pair_needed, best, explained, unseen)


def _unseen(weighted: Floats, stretch: float) -> float:
    """A factor moves chi^2 by (ln(factor) |slopes / sigma|)^2, which must be `SIGNIFICANT`."""
    return min(math.expm1(math.sqrt(SIGNIFICANT * stretch) / float(np.linalg.norm(weighted))), LIMITS[1] - 1.0)


def _gain(observed: Observations, worse: Explanation, better: Explanation, num_factors: int) -> float:
    """How far chi^2 falls, errors stretched to what the better one leaves."""
    return (worse.chi2 - better.chi2) / _stretch(observed, better.chi2, num_factors)


def _stretch(observed: Observations, chi2: float, num_factors: int) -> float:
    return max(1.0, chi2 / max(1, len(observed.logs) - num_factors))


def _explains(observed: Observations, before: Explanation, best: Explanation) -> bool:
    if best.at_limit:
        return False
    return best.chi2 <= 2.0 * len(observed.logs) or best.rms <= 0.2 * before.rms


def _best_pair(observed: Observations, names: Sequence[str], jacobian: Mapping[str, Floats]) -> list[str]:
    """The two factors that leave least to first order; none when all act alike."""
    weighted = {name: jacobian[name] / observed.sigma for name in names}
    different = [
        (a, b) for a, b in itertools.combinations(names, 2) if _alike(weighted[a], weighted[b]) < _COLLINEAR
    ]  # fmt: skip

    def left(pair: Sequence[str]) -> float:
        matrix = np.stack([jacobian[name] for name in pair], axis=1)
        return observed.chi2(observed.logs - matrix @ _least_squares(matrix, observed.logs, observed.sigma))

    if not different or len(observed.logs) < 2:
        return []
    return list(different[int(np.argmin([left(pair) for pair in different]))])


def _alike(a: Floats, b: Floats) -> float:
    """Cosine between two effects."""
    return abs(float(a @ b)) / math.sqrt(float(a @ a) * float(b @ b))


def _least_squares(matrix: Floats, logs: Floats, sigma: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(matrix / sigma[:, None], logs / sigma, rcond=None)[0], np.float64)


def _fit(observed: Observations, names: Sequence[str], jacobian: Mapping[str, Floats], respond: Respond) -> Explanation:
    """Gauss-Newton from 1; the best point that was simulated counts, never an extrapolated one."""
    low, high = np.log(LIMITS)
    slopes = np.stack([jacobian[name] for name in names], axis=1)
    theta = np.clip(_least_squares(slopes, observed.logs, observed.sigma), low, high)
    tried: list[tuple[float, Floats, Floats, Floats]] = []
    for _ in range(_STEPS):
        change = respond(dict(zip(names, np.exp(theta).tolist(), strict=True)))
        left = observed.logs - change
        if length := float(theta @ theta):
            slopes = slopes + np.outer(change - slopes @ theta, theta) / length
        tried.append((observed.chi2(left), theta, left, slopes))
        step = np.clip(theta + _least_squares(slopes, left, observed.sigma), low, high) - theta
        if np.abs(step).max() < _TOLERANCE:
            break
        theta = theta + step
    _, theta, left, slopes = min(tried, key=lambda each: each[0])
    at_limit = bool(np.isclose(theta, low).any() or np.isclose(theta, high).any())
    return _explanation(observed, _intervals(observed, names, theta, slopes, left), left, at_limit)


def _explanation(
    observed: Observations, factors: Mapping[str, Interval], left: Floats, at_limit: bool = False
) -> Explanation:
    rms = math.expm1(math.sqrt(float((left**2).mean())))
    return Explanation(factors, observed.chi2(left), rms, at_limit)


def _intervals(
    observed: Observations, names: Sequence[str], theta: Floats, slopes: Floats, left: Floats
) -> dict[str, Interval]:
    """95 %: Student's t with as many degrees of freedom as there are load tests beyond the factors."""
    tests = len(set(observed.groups))
    degrees = tests - len(names)
    if degrees < 1:
        return {name: Interval(math.exp(at), None, None, tests) for name, at in zip(names, theta, strict=True)}
    weighted = slopes / observed.sigma[:, None]
    stretch = _stretch(observed, observed.chi2(left), len(names))
    errors = np.sqrt(stretch * np.diag(np.linalg.pinv(weighted.T @ weighted)))
    half = np.minimum(t_quantile(0.975, degrees) * errors, _WIDEST)
    ends = zip(names, theta, theta - half, theta + half, strict=True)
    return {name: Interval(math.exp(at), math.exp(low), math.exp(high), tests) for name, at, low, high in ends}
