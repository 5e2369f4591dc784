"""What a drafter thinks of its own drafts: probabilities that go with the acceptance tape. Not a kind of its own.

Tapes say what is accepted, not how sure the drafter was. The confidence C of a draft is modelled as calibrated: of the
drafts given C = c, the share c is accepted. With C ~ Beta(q s, (1 - q) s) over drafts of one depth, q their acceptance
rate, that fixes the law given the outcome: Beta(q s + 1, (1 - q) s) for a draft that is accepted, Beta(q s, (1 - q) s
+ 1) for one that is not. One number is left, the sharpness 1 / (1 + s) = Var(C) / (q (1 - q)), the share of the
variance of acceptance that C explains. Drafts behind the first rejection count as rejected. One uniform per output
position, the one that the draft sits on, gives C by inverse CDF.
"""

import numpy as np

from sim.acceptance.base import Counts, Streams, Tape
from sim.acceptance.positions import Positions
from sim.distributions import beta_quantile
from sim.errors import ScenarioError
from sim.rng import Floats
from sim.workload.requests import RequestTable

#: Name of the stream with one uniform per position that gives the confidence of whatever draft sits there.
CONFIDENCE_STREAM = "draft_length/confidence"


def confident_drafts(
    tape: Tape, requests: RequestTable, max_draft_tokens: int, threshold: float, sharpness: float, streams: Streams
) -> Counts:
    """(T,) leading drafts of a step that starts at each position whose confidence is at least `threshold`.

    Args:
        tape: of chains that are always as long as asked.
        requests: the rows it covers.
        max_draft_tokens: longest draft.
        threshold: smallest confidence, 0..1.
        sharpness: 0 (the same for all drafts of a depth) .. 1 (knows what will be accepted).
        streams: the replicate's random numbers.

    Raises:
        ScenarioError: the tape's drafts are no such chains.
    """
    if tape.by_k or tape.reach is not None or tape.proposed is not None:
        raise ScenarioError(
            "this acceptance says nothing about the drafter's confidence: its drafts are no plain chains"
        )
    positions = Positions(requests, max_draft_tokens)
    draws = positions.uniforms(streams, CONFIDENCE_STREAM)
    here = np.repeat(positions.starts - requests.output_offset, requests.output_tokens)
    here += np.arange(requests.num_positions)
    alive, confident = np.ones(len(here), np.bool_), np.zeros(len(here), np.uint8)
    for depth in range(1, max_draft_tokens + 1):
        accepted = tape.accepted >= depth
        reached = np.count_nonzero(tape.accepted >= depth - 1)
        rate = np.count_nonzero(accepted) / reached if reached else 0.0
        below = np.array([_share_below(threshold, rate, sharpness, outcome) for outcome in (0, 1)])
        alive &= draws[here + (depth - 1)] >= below[accepted.view(np.uint8)]
        confident += alive
    return confident


def _share_below(threshold: float, rate: float, sharpness: float, accepted: int) -> float:
    """P(confidence < threshold | whether the draft is accepted), for drafts of a depth accepted at this rate."""
    if threshold == 0.0:
        return 0.0
    if sharpness == 0.0 or rate in (0.0, 1.0):
        return float(rate < threshold)
    if sharpness == 1.0:
        return float(accepted < threshold)
    concentration = 1.0 / sharpness - 1.0
    a, b = rate * concentration + accepted, (1.0 - rate) * concentration + (1 - accepted)
    return _beta_share_below(threshold, a, b)


def _beta_share_below(threshold: float, a: float, b: float) -> float:
    """P(X < threshold) for X ~ Beta(a, b): where the quantile function passes the threshold, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        below: Floats = beta_quantile(np.array([middle]), a, b)
        low, high = (middle, high) if below[0] < threshold else (low, middle)
    return 0.5 * (low + high)
