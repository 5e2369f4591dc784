"""A two-valued state per output position: drawing its path, and exact survivals. For `regime` and `ngram_markov`.

State 0 and state 1 are a Markov chain along the output, so states belong to tokens and not to steps: a step that starts
after a rejection starts in hard text, and acceptance at depth 1 depends on K without being told so.
"""

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


def two_state_survival(stay: Floats, enter: Floats, accept: Floats, weights: Floats) -> Floats:
    """Exact survivals per verification step over long outputs, pooled over kinds of requests.

    A step is a path through (state, depth): it judges a position per draft, ends with the first rejection, and the next
    step starts at the position after it (after the bonus token when all K are accepted). That gives the chain of the
    states at which steps start, whose stationary split weighs the survivals.

    Args:
        stay: (Q,) P(first | first) of each kind of request.
        enter: (Q,) P(first | second).
        accept: (Q, K, 2) rate of a draft of depth d that sits on a position in the first or second state.
        weights: (Q,) share of the requests.

    Returns:
        (K,) unconditional rates.
    """
    move = np.stack((np.stack((stay, 1.0 - stay), -1), np.stack((enter, 1.0 - enter), -1)), axis=1)
    alive = np.broadcast_to(np.eye(2), (len(stay), 2, 2))  # [request, state at the start of the step, state here]
    next_start = np.zeros((len(stay), 2, 2))
    survivals = []
    for depth in range(accept.shape[1]):
        accepted = alive * accept[:, None, depth, :]
        next_start += (alive - accepted) @ move
        survivals.append(accepted.sum(axis=2))
        alive = accepted @ move
    next_start += alive @ move
    split = stationary_first(next_start[:, 0, 0], next_start[:, 1, 0])
    stuck = (next_start[:, 0, 1] <= 0) & (next_start[:, 1, 0] <= 0)
    split = np.where(stuck, stationary_first(stay, enter), split)
    by_start = np.stack(survivals, axis=1)  # [request, depth, state at the start]
    return pooled_survival(by_start[:, :, 0] * split[:, None] + by_start[:, :, 1] * (1 - split[:, None]), weights)
