"""Fit the two-regime law of acceptance to recorded sequences, by the moments that servers feel.

Matched together: tokens per step at K = 1..10, the spread between requests and the correlation of neighbouring steps at
several K. The moments of the law are exact for long outputs; recorded outputs are short, so what the law says on the
recorded lengths (simulated) is compared with the recording and the targets of the next round move by the difference.
Depth tables start from the steps that a server with long drafts would really take and move by one logit per depth.
"""

from functools import partial

import numpy as np

from sim.acceptance.base import Floats
from sim.acceptance.recording import Recording
from sim.acceptance.regime import Regime, RegimeParameters, regime_law
from sim.acceptance.spread import logistic, logit
from sim.acceptance.two_state import StepMoments, two_state_moments
from sim.calibration.acceptance_moments import MAX_DRAFTS, Moments, expected_moments, recorded_moments
from sim.calibration.fit import fit
from sim.errors import CalibrationError

#: Drafts with rates of their own; those beyond K = 10 move with the tenth.
_DEEPEST = 16
#: K (from 0) at which spread and correlation are matched.
_AT = np.array([1, 3, 5, 10]) - 1
_NODES, _ROUNDS = 32, 3
#: Standard deviations that weigh the moments: relative, relative, absolute; and logits of freedom per depth.
_TOKENS, _SPREAD, _LAG, _DEPTH = 0.003, 0.05, 0.01, 0.3
_REQUESTS = 20
#: Weight, in drafts, of the rate one depth before.
_PRIOR_DRAFTS = 20.0
_SPREAD_FLOOR = 0.01

#: Start and bounds: hard logit, easy minus hard, logits of staying easy and hard, request_sd, coupling.
_START = (0.3, 2.0, 2.0, 2.0, 0.3, 0.6)
_BOUNDS = ((-3.0, 3.0), (0.1, 6.0), (-1.0, 6.0), (-1.0, 6.0), (0.02, 1.5), (0.0, 2.0))


def fit_regime(recording: Recording) -> RegimeParameters:
    """The parameters whose steps look like those of the recording.

    Raises:
        CalibrationError: the drafter sometimes proposes nothing (n-gram), or there are fewer than 20 requests.
    """
    if recording.proposed is not None:
        raise CalibrationError("a drafter that sometimes proposes nothing has no regimes: use kind `ngram_markov`")
    if len(recording.accepted) < _REQUESTS:
        raise CalibrationError(f"{len(recording.accepted)} requests cannot show a spread; {_REQUESTS} are needed")
    tables, measured = _step_tables(recording), recorded_moments(recording)
    targets, found = measured, None
    for _ in range(_ROUNDS):
        found = _fit_long(targets, tables)
        targets = _moved(targets, measured, found, recording)
    if found is None:
        raise CalibrationError("no round of fitting was run")
    return found


def _step_tables(recording: Recording) -> Floats:
    """(15, 2) logits of drafts 2..16 where a first draft would be accepted (column 0) or not, in steps at K=16."""
    counts = np.zeros((_DEEPEST + 1, 2, 2))  # [depth, x = 0, (judged, accepted)]
    for sequence in recording.accepted:
        position = 0
        while position < len(sequence):
            accepted = min(int(sequence[position]), _DEEPEST)
            here = np.arange(1, min(accepted + 1, _DEEPEST, len(sequence) - position))
            missed = (sequence[position + here] == 0).astype(np.int64)
            counts[here + 1, missed, 0] += 1
            counts[here + 1, missed, 1] += here < accepted
            position += accepted + 1
    rates = [np.array([0.75, 0.25])]
    for judged, accepted in counts[2:].transpose(0, 2, 1):  # few steps get deep: lean on the rate of the depth before
        rates.append((accepted + _PRIOR_DRAFTS * rates[-1]) / (judged + _PRIOR_DRAFTS))
    return logit(np.array(rates[1:]))


def _parameters(vector: Floats, tables: Floats) -> RegimeParameters:
    hard, gap, stay_easy, stay_hard, request_sd, coupling = (float(value) for value in vector[: len(_START)])
    moved = np.log(vector[len(_START) :])
    moved = np.concatenate((moved, np.full(len(tables) - len(moved), moved[-1])))
    keep, rescue = logistic(tables + moved[:, None]).T
    return RegimeParameters(
        easy_logit=hard + gap,
        hard_logit=hard,
        stay_easy=float(logistic(np.array(stay_easy))),
        stay_hard=float(logistic(np.array(stay_hard))),
        request_sd=request_sd,
        depth_coupling=coupling,
        keep=tuple(float(rate) for rate in keep),
        rescue=tuple(float(rate) for rate in rescue),
    )


def _long(parameters: RegimeParameters) -> StepMoments:
    return two_state_moments(regime_law(parameters, 0.0, MAX_DRAFTS, _NODES))


def _predicted(tables: Floats, vector: Floats) -> Floats:
    moments = _long(_parameters(vector, tables))
    spread = np.hypot(moments.request_sd[_AT], _SPREAD_FLOOR)
    return np.concatenate((moments.tokens_per_step, spread, 1.0 + moments.lag_correlation[_AT], vector[len(_START) :]))


def _fit_long(targets: Moments, tables: Floats) -> RegimeParameters:
    """Fit the exact moments of long outputs."""
    depths = MAX_DRAFTS - 1
    wanted = np.concatenate(
        (
            targets.tokens_per_step,
            np.hypot(targets.request_sd[_AT], _SPREAD_FLOOR),
            1.0 + targets.lag_correlation[_AT],
            np.ones(depths),
        )
    )
    sizes = (MAX_DRAFTS, _TOKENS), (len(_AT), _SPREAD), (len(_AT), _LAG), (depths, _DEPTH)
    weights = np.concatenate([np.full(count, sd**-2) for count, sd in sizes])
    start, bounds = (*_START, *([1.0] * depths)), (*_BOUNDS, *([(0.2, 3.0)] * depths))
    found = fit(partial(_predicted, tables), wanted, start, bounds, weights)
    return _parameters(np.array(found.parameters), tables)


def _moved(targets: Moments, measured: Moments, found: RegimeParameters, recording: Recording) -> Moments:
    """Targets of the next round: moved by what is left between the law on the recorded lengths and the recording."""
    short = expected_moments(Regime(parameters=found), recording)
    spread = targets.request_sd**2 + measured.request_sd**2 - short.request_sd**2
    return Moments(
        targets.tokens_per_step * measured.tokens_per_step / short.tokens_per_step,
        np.sqrt(np.maximum(spread, _SPREAD_FLOOR**2)),
        targets.lag_correlation + measured.lag_correlation - short.lag_correlation,
    )
