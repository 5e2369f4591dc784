"""Acceptance models against recorded sequences they were not fitted to; i.i.d. and a plain replay beside them.

Works on any folder with files `D_accepted.csv.gz` (and `D_streams_relabelled.csv.gz`); nothing is known by name except
which shipped profile was fitted to which set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.acceptance.base import AcceptanceModel
from sim.acceptance.length import Length
from sim.acceptance.ngram_markov import NgramMarkov
from sim.acceptance.profiles import profile_names
from sim.acceptance.recording import Recording, read_recording, recorded_methods
from sim.acceptance.regime import Level, Regime
from sim.acceptance.replay_check import ReplayMismatches, replay_mismatches
from sim.calibration.acceptance import fit_regime
from sim.calibration.acceptance_moments import (
    Moments,
    expected_moments,
    recorded_moments,
    recorded_walks,
    sampling_errors,
)
from sim.proposers.ngram import NgramLookup

_SUFFIXES = ("_accepted.csv.gz", "_accepted.csv")
_STREAMS = "_streams_relabelled.csv.gz"

#: The K whose level is known when a shipped profile is moved to new text.
LEVEL_AT = 3
#: Halves of fewer requests show no spread.
MIN_REQUESTS = 40
#: What vLLM's n-gram drafter was set to in the recordings.
_LOOKUP = NgramLookup(3, 7)
_HALVES = ((0, "even, scored on odd"), (1, "odd, scored on even"))


@dataclass(frozen=True, eq=False)
class Score:
    """One model on one recording.

    Attributes:
        model: what was tried.
        how: what it was allowed to know.
        expected: what it says; on the recorded output lengths.
        in_sample: it was fitted to the very requests.
        target: the targets are meant for it.
    """

    model: str
    how: str
    expected: Moments
    in_sample: bool = False
    target: bool = False


@dataclass(frozen=True, eq=False)
class Part:
    """Recorded requests (all of a set, or a half) and the models tried on them."""

    measured: Moments
    errors: Moments
    scores: tuple[Score, ...]


@dataclass(frozen=True, eq=False)
class DataSet:
    """One method of one file.

    Attributes:
        name, method: of the file and in it.
        requests, positions: recorded and used (degenerate ones left out).
        halves: fitted on the other half of the requests each; empty for drafters that sometimes propose nothing.
        whole: shipped profiles on all requests.
        replay: token streams replayed against the recording; None without streams.
    """

    name: str
    method: str
    requests: int
    positions: int
    halves: tuple[Part, ...]
    whole: Part
    replay: ReplayMismatches | None


def score_folder(data: Path) -> list[DataSet]:
    """Score every recording in `data`, or in its `acceptance`, that has enough requests; none without recordings.

    Raises:
        ScenarioError: a file cannot be used.
    """
    return [_score(path, method) for path, method, requests in _recordings(data) if requests >= MIN_REQUESTS]


def too_small(data: Path) -> list[tuple[str, str]]:
    """Recordings that `score_folder` leaves out, and why."""
    return [
        (f"{path.name} {method}", f"fewer than {MIN_REQUESTS} requests show no spread")
        for path, method, requests in _recordings(data)
        if requests < MIN_REQUESTS
    ]


def _recordings(data: Path) -> Iterator[tuple[Path, str, int]]:
    """File, method in it, and how many requests that are not degenerate."""
    for folder in (data, data / "acceptance"):
        for path in sorted(path for path in folder.glob("*_accepted.csv*") if path.name.endswith(_SUFFIXES)):
            for method in recorded_methods(path):
                yield path, method, len(read_recording(path, method, include_degenerate=False).accepted)


def _score(path: Path, method: str) -> DataSet:
    name = path.name.split("_accepted.csv")[0]
    recording = read_recording(path, method, include_degenerate=False)
    finds = recording.proposed is not None
    return DataSet(
        name=name,
        method=method,
        requests=len(recording.accepted),
        positions=int(recording.decoded_tokens.sum()),
        halves=() if finds else tuple(_half(recording, first, how) for first, how in _HALVES),
        whole=_part(recording, tuple(_lookup_scores(name, recording) if finds else _level_scores(name, recording))),
        replay=_replay(path, name, method) if finds else None,
    )


def _part(recording: Recording, scores: tuple[Score, ...]) -> Part:
    return Part(recorded_moments(recording), sampling_errors(recorded_walks(recording)), scores)


def _half(recording: Recording, first: int, how: str) -> Part:
    mine, other = recording.part(first, 2), recording.part(1 - first, 2)
    known = recorded_moments(mine)
    regime = Score(
        "regime", f"fitted on {how}", expected_moments(Regime(parameters=fit_regime(mine)), other), target=True
    )
    iid = Score("i.i.d.", f"level of {how}", expected_moments(_iid(known), other))
    return _part(other, (regime, iid, Score("the other half itself", how, known)))


def _iid(known: Moments) -> Length:
    return Length(tokens_per_step=float(known.tokens_per_step[LEVEL_AT - 1]), num_speculative_tokens=LEVEL_AT)


def _level_scores(name: str, recording: Recording) -> Iterator[Score]:
    known = recorded_moments(recording)
    level = Level(tokens_per_step=float(known.tokens_per_step[LEVEL_AT - 1]), num_speculative_tokens=LEVEL_AT)
    if name in profile_names("regime"):
        yield Score(f"regime {name}", "as shipped", expected_moments(Regime(profile=name), recording), in_sample=True)
    for profile in profile_names("regime"):
        if profile != name:
            moved = Regime(profile=profile, level=level)
            yield Score(f"regime {profile}", f"level at K={LEVEL_AT}", expected_moments(moved, recording))
    yield Score("i.i.d.", f"level at K={LEVEL_AT}", expected_moments(_iid(known), recording))


def _lookup_scores(name: str, recording: Recording) -> Iterator[Score]:
    for profile in profile_names("ngram"):
        model: AcceptanceModel = NgramMarkov(profile=profile)
        yield Score(f"ngram_markov {profile}", "as shipped", expected_moments(model, recording), profile == name)
    yield Score("i.i.d.", f"level at K={LEVEL_AT}", expected_moments(_iid(recorded_moments(recording)), recording))


def _replay(path: Path, name: str, method: str) -> ReplayMismatches | None:
    streams = path.with_name(f"{name}{_STREAMS}")
    return replay_mismatches(streams, path, _LOOKUP, method=method) if streams.is_file() else None


def relative_errors(expected: Moments, measured: Moments) -> Moments:
    """Relative errors of tokens per step and spread; differences of the correlation."""
    return Moments(
        expected.tokens_per_step / measured.tokens_per_step - 1.0,
        np.divide(expected.request_sd, measured.request_sd) - 1.0,
        expected.lag_correlation - measured.lag_correlation,
    )
