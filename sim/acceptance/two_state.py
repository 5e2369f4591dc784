"""A two-valued state per output position: drawing its path, and exact survivals. For `regime` and `ngram_markov`.

State 0 and state 1 are a Markov chain along the output, so states belong to tokens and not to steps: a step that starts
after a rejection starts in hard text, and acceptance at depth 1 depends on K without being told so.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sim.acceptance.base import Floats, Ints
from sim.acceptance.positions import Bools
from sim.acceptance.spread import pooled_survival


def first_state_path(uniforms: Floats, starts: Ints, stay: Floats, enter: Floats, initial: Floats) -> Bools:
    """Where the chain is in its first state, exactly, without a loop over positions.

    With one uniform U per position the next state is "first iff U < p(previous)", p = `stay` after the first state and
    `enter` after the second. U below both or above both settles the state whatever came before; in between the state is
    kept (stay > enter) or flipped (stay < enter). So a state is the last settled one, flipped by the parity of the
    distance where flipping applies.

    Args:
        uniforms: (T,) rows one after another.
        starts: (N,) index of the first position of every row; settled by `initial`.
        stay: P(first | first), scalar array or (T,).
        enter: P(first | second), likewise.
        initial: (N,) or scalar array, P(first) at the start of a row.
    """
    value = uniforms < np.minimum(stay, enter)
    settled = value | (uniforms >= np.maximum(stay, enter))
    settled[starts] = True
    value[starts] = uniforms[starts] < initial
    index = np.arange(len(uniforms))
    last = np.maximum.accumulate(np.where(settled, index, 0))
    flipped = ((index - last) & 1).astype(np.bool_) & (stay < enter) if np.any(stay < enter) else np.False_
    path: Bools = value[last] ^ flipped
    return path


def stationary_first(stay: Floats, enter: Floats) -> Floats:
    """Share of positions in the first state, enter / (enter + 1 - stay); 1/2 when neither state is ever left."""
    leave = 1.0 - stay
    total = enter + leave
    return np.divide(enter, total, out=np.full_like(total, 0.5), where=total > 0)


class TwoStates(NamedTuple):
    """A two-state law of several kinds of requests.

    Attributes:
        stay: (Q,) P(first | first) of each kind of request.
        enter: (Q,) P(first | second).
        accept: (Q, K, 2) rate of a draft of depth d that sits on a position in the first or second state.
        weights: (Q,) share of the requests.
    """

    stay: Floats
    enter: Floats
    accept: Floats
    weights: Floats


class StepMoments(NamedTuple):
    """What steps look like over long outputs, requests of equal length; one entry per K = 1, 2, ...

    Attributes:
        tokens_per_step: with the bonus token, over all steps.
        request_sd: standard deviation over requests of their own tokens per step, without sampling noise.
        lag_correlation: of the drafts accepted by neighbouring steps, pooled over requests.
    """

    tokens_per_step: Floats
    request_sd: Floats
    lag_correlation: Floats


class _Depth(NamedTuple):
    """One more draft of a step: (Q, 2) survival by the state at the start; (Q, 2, 2) to the state of the next start."""

    survived: Floats
    rejected: Floats
    all_accepted: Floats


def two_state_survival(law: TwoStates) -> Floats:
    """Exact survivals (K,) per verification step over long outputs, pooled over kinds of requests.

    A step is a path through (state, depth): it judges a position per draft, ends with the first rejection, and the next
    step starts at the position after it (after the bonus token when all K are accepted). That gives the chain of the
    states at which steps start, whose stationary split weighs the survivals.
    """
    depths = list(_depths(law))
    rejected: Floats = np.sum([depth.rejected for depth in depths], axis=0)
    split = _start_split(law, rejected + depths[-1].all_accepted)
    by_start = np.stack([depth.survived for depth in depths], axis=1)  # [request, depth, state at the start]
    return pooled_survival(by_start[:, :, 0] * split[:, :1] + by_start[:, :, 1] * split[:, 1:], law.weights)


def two_state_moments(law: TwoStates) -> StepMoments:
    """Exact moments of the steps at every K up to the depths of `law.accept`."""
    shape = len(law.weights), 2, 2
    next_start, carried = np.zeros(shape), np.zeros(shape)  # carried: the same, times the drafts accepted
    mean, square = np.zeros(shape[:2]), np.zeros(shape[:2])
    found = []
    for k, depth in enumerate(_depths(law), start=1):
        next_start, carried = next_start + depth.rejected, carried + (k - 1) * depth.rejected
        mean, square = mean + depth.survived, square + (2 * k - 1) * depth.survived
        split = _start_split(law, next_start + depth.all_accepted)
        product = np.einsum("qs,qst,qt->q", split, carried + k * depth.all_accepted, mean)
        found.append(_pooled_moments(law.weights, (split * mean).sum(1), (split * square).sum(1), product))
    return StepMoments(*(np.array(column) for column in zip(*found, strict=True)))


def _pooled_moments(weights: Floats, accepted: Floats, squares: Floats, products: Floats) -> tuple[float, float, float]:
    """From each kind of request's mean, square and product of neighbours; long requests take 1/(1+mean) steps each."""
    steps = weights / (1.0 + accepted)
    steps = steps / steps.sum()
    mean = steps @ accepted
    variance = steps @ squares - mean**2
    between = max(float(weights @ accepted**2 - (weights @ accepted) ** 2), 0.0)
    lag = float((steps @ products - mean**2) / variance) if variance > 0 else 0.0
    return 1.0 + float(mean), math.sqrt(between), lag


def _depths(law: TwoStates) -> Iterator[_Depth]:
    move = np.stack((np.stack((law.stay, 1.0 - law.stay), -1), np.stack((law.enter, 1.0 - law.enter), -1)), axis=1)
    alive = np.broadcast_to(np.eye(2), (len(law.stay), 2, 2))  # [request, state at the start of the step, state here]
    for depth in range(law.accept.shape[1]):
        accepted = alive * law.accept[:, None, depth, :]
        rejected = (alive - accepted) @ move
        alive = accepted @ move
        yield _Depth(accepted.sum(axis=2), rejected, alive @ move)


def _start_split(law: TwoStates, next_start: Floats) -> Floats:
    """(Q, 2) stationary split of the states at which steps start."""
    split = stationary_first(next_start[:, 0, 0], next_start[:, 1, 0])
    stuck = (next_start[:, 0, 1] <= 0) & (next_start[:, 1, 0] <= 0)
    split = np.where(stuck, stationary_first(law.stay, law.enter), split)
    return np.stack((split, 1.0 - split), axis=1)
