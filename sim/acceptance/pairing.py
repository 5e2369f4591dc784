"""Workload rows take recorded requests: whole requests, of similar length, cut or gone on with. Used by the replays."""

import numpy as np

from sim.acceptance.base import Counts, Floats, Ints, Streams, Tape
from sim.acceptance.recording import Recording, joined
from sim.workload.requests import RequestTable

#: A row draws one of this many recorded requests whose output lengths are nearest to its own.
_SIMILAR_REQUESTS = 16


def laid_out(recording: Recording, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
    """A tape of recorded sequences for a workload.

    A row gets a recorded request of its own prompt and output length where there is one; else one of similar output
    length, drawn by row among the nearest, cut at the end of the row's output. A longer row goes on with the next
    longer recorded requests, whole ones, round and round.
    """
    wanted = requests.output_tokens - 1
    uniform = streams.per_row("acceptance/replay", len(requests))
    first = _paired(recording.decoded_tokens, wanted, uniform)
    if recording.prompt_tokens is not None:
        first = _exact(recording, requests, uniform, first)
    pairs = list(zip(first.tolist(), wanted.tolist(), strict=True))
    accepted = tuple(_cycled(recording.accepted, start, length) for start, length in pairs)
    proposed = recording.proposed
    if proposed is not None:
        proposed = tuple(_cycled(proposed, start, length) for start, length in pairs)
    return joined(accepted, proposed, max_draft_tokens)


def _paired(recorded: Ints, wanted: Ints, uniform: Floats) -> Ints:
    """For each wanted length one of the recorded requests nearest in rank (`recorded` is sorted), by `uniform`."""
    width = min(_SIMILAR_REQUESTS, len(recorded))
    middle = (np.searchsorted(recorded, wanted, side="left") + np.searchsorted(recorded, wanted, side="right")) // 2
    lowest = np.clip(middle - width // 2, 0, len(recorded) - width)
    chosen: Ints = lowest + (uniform * width).astype(np.int64)
    return chosen


def _exact(recording: Recording, requests: RequestTable, uniform: Floats, otherwise: Ints) -> Ints:
    """The recorded request of the very lengths, one of them by `uniform` when there are several."""
    recorded = _length_key(recording.prompt_tokens, recording.decoded_tokens)
    wanted = _length_key(requests.prompt_tokens, requests.output_tokens - 1)
    lowest, end = (np.searchsorted(recorded, wanted, side=side) for side in ("left", "right"))
    return np.where(end > lowest, lowest + (uniform * (end - lowest)).astype(np.int64), otherwise)


def _length_key(prompt_tokens: Ints | None, decoded_tokens: Ints) -> Ints:
    """One number for both lengths, in the order of recordings: by output, then by prompt."""
    return decoded_tokens * np.int64(2**32) + (0 if prompt_tokens is None else prompt_tokens)


def _cycled(sequences: tuple[Counts, ...], start: int, length: int) -> Counts:
    """`length` positions from whole sequences one after another, beginning with `start`."""
    parts, covered, index = [sequences[start][:length]], len(sequences[start]), start
    while covered < length:
        index = (index + 1) % len(sequences)
        parts.append(sequences[index][: length - covered])
        covered += len(sequences[index])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
