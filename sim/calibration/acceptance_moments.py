"""What steps look like at K = 1..10: measured on a recording, or expected of a model on its output lengths."""

from dataclasses import dataclass

import numpy as np

from sim.acceptance.base import AcceptanceModel, Floats, Ints, Tape
from sim.acceptance.recording import Recording
from sim.acceptance.walk import Walk, walk
from sim.rng import Streams
from sim.workload.requests import RequestTable

#: Largest K that is looked at.
MAX_DRAFTS = 10
#: Positions drawn to learn what a model expects: its noise is about 0.2 % of tokens per step.
_POSITIONS = 1_500_000


@dataclass(frozen=True, eq=False)
class Moments:
    """Each of shape (10,), for K = 1..10.

    Attributes:
        tokens_per_step: bonus token included, ratio of sums.
        request_sd: over requests, of their own tokens per step (`Walk.request_sd`).
        lag_correlation: of the drafts accepted by neighbouring steps (`Walk.lag_correlation`).
    """

    tokens_per_step: Floats
    request_sd: Floats
    lag_correlation: Floats


@dataclass(frozen=True, slots=True)
class EvenStreams(Streams):
    """Random numbers for tiled requests: each request meets an even spread of request effects over its copies."""

    copies: int = 1

    def per_row(self, name: str, num_rows: int) -> Floats:
        """One uniform per row; those of the copies of a request lie in different equal parts of [0, 1)."""
        within = np.random.Generator(self._philox(name)).random((self.copies, num_rows // self.copies))
        turn = np.random.Generator(self._philox(f"{name}/turn")).integers(self.copies, size=num_rows // self.copies)
        part = (np.arange(self.copies)[:, None] + turn) % self.copies
        uniforms: Floats = ((part + within) / self.copies).ravel()
        return uniforms


def recorded_walks(recording: Recording) -> list[Walk]:
    """The recording at K = 1..10."""
    return _walks(recording.table(), recording.tape(MAX_DRAFTS))


def recorded_moments(recording: Recording) -> Moments:
    """What was measured."""
    return _moments(recorded_walks(recording))


def expected_moments(model: AcceptanceModel, recording: Recording) -> Moments:
    """What a model says about requests of the recorded output lengths, over many copies of them."""
    copies = max(2, _POSITIONS // int(recording.decoded_tokens.sum()))
    requests = recording.table().tiled(copies)
    return _moments(_walks(requests, model.tape(requests, MAX_DRAFTS, EvenStreams(0, copies=copies))))


def sampling_errors(walks: list[Walk], samples: int = 200) -> Moments:
    """Standard errors by bootstrap: requests drawn with replacement."""
    requests = len(walks[0].steps)
    draws: list[Ints] = [
        (Streams(0, draw).per_row("validation/bootstrap", requests) * requests).astype(np.int64)
        for draw in range(samples)
    ]
    found = [_moments([one.of(rows) for one in walks]) for rows in draws]
    names = ("tokens_per_step", "request_sd", "lag_correlation")
    return Moments(*(np.std([getattr(one, name) for one in found], axis=0) for name in names))


def _walks(requests: RequestTable, tape: Tape) -> list[Walk]:
    return [walk(tape, requests, k) for k in range(1, MAX_DRAFTS + 1)]


def _moments(walks: list[Walk]) -> Moments:
    return Moments(
        np.array([found.tokens_per_step for found in walks]),
        np.array([found.request_sd for found in walks]),
        np.array([found.lag_correlation for found in walks]),
    )
