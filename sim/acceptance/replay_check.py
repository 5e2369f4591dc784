"""A replay of token streams against what an engine recorded on them, position by position."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.acceptance.recording import read_recording
from sim.acceptance.stream_replay import recorded
from sim.errors import ScenarioError
from sim.proposers.base import Proposer
from sim.token_streams.streams import read_streams


class ReplayMismatches(NamedTuple):
    """What a replay gets wrong.

    Attributes:
        positions: decode positions compared, all requests.
        accepted: positions where another number of drafts is accepted.
        proposed: positions where another number of drafts is found; None when the recording does not say.
    """

    positions: int
    accepted: int
    proposed: int | None


def replay_mismatches(
    streams: Path, recording: Path, proposer: Proposer, *, method: str = "ngram", max_draft_tokens: int = 20
) -> ReplayMismatches:
    """Replay `streams` by `proposer` and compare with the sequences of `recording`.

    For the data sets of `data/acceptance`: `replay_mismatches(folder / "D_streams_relabelled.csv.gz",
    folder / "D_accepted.csv.gz", NgramLookup(3, 7))` gives 0 of 49,548 positions for gsm8k and 1 of 225,231 for
    sharegpt. Accepted lengths are clipped at the end of the output in both.

    Args:
        streams: token streams, see `read_streams`.
        recording: acceptance sequences of the same requests, see `read_recording`.
        proposer: the rule that the engine is thought to have used, such as `NgramLookup`.
        method: rows of the recording.
        max_draft_tokens: drafts per step of the recording.

    Raises:
        ScenarioError: a file cannot be used, or they are not of the same requests.
    """
    replayed = read_streams(streams)
    measured = read_recording(recording, method, include_degenerate=True)
    order = np.argsort(replayed.output_tokens, kind="stable")
    found = recorded(replayed, proposer.replay(replayed, max_draft_tokens), order)
    if not np.array_equal(found.decoded_tokens, measured.decoded_tokens):
        raise ScenarioError(f"{streams} and {recording} hold other requests: numbers or lengths of outputs differ")
    ours, theirs = np.concatenate(found.accepted), np.concatenate(measured.accepted)
    wrong = None
    if measured.proposed is not None and found.proposed is not None:
        wrong = int((np.concatenate(found.proposed) != np.concatenate(measured.proposed)).sum())
    return ReplayMismatches(len(ours), int((ours != theirs).sum()), wrong)
