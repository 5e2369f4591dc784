"""Kinds against the measured sequences (not part of the project; skipped where they are absent)."""

import csv

import numpy as np
import pytest

from sim.acceptance.ngram_markov import NgramMarkov
from sim.acceptance.regime import Level, Regime
from sim.acceptance.sequence_replay import SequenceReplay
from sim.acceptance.walk import walk
from sim.calibration.acceptance import fit_regime
from sim.calibration.acceptance_moments import expected_moments, recorded_moments
from sim.rng import Streams
from sim.workload.requests import RequestTable

COLUMNS = ("steps", "tokens_per_step", "req_sd", "drafted_per_step", "frac_steps_with_draft")
SETS, DRAFTS = ("gsm8k", "sharegpt"), (1, 3, 5, 10)


def table(output_tokens):
    zeros = np.zeros(len(output_tokens), dtype=np.int64)
    return RequestTable(zeros, zeros + 1, output_tokens, zeros, np.ones(len(output_tokens), dtype=bool))


@pytest.fixture
def replay(shared_data):
    return lambda name, method: SequenceReplay(
        path=str(shared_data / "acceptance" / f"{name}_accepted.csv.gz"), method=method
    )


@pytest.fixture
def truth(shared_data):
    def row(name, method, k):
        with (shared_data / "acceptance" / f"{name}_tokens_per_step.csv").open() as file:
            rows = [r for r in csv.DictReader(file) if r["method"] == method and r["subset"] == "clean"]
        found = next(r for r in rows if int(r["K"]) == k)
        return {column: float(found[column]) for column in COLUMNS}

    return row


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("method", ["eagle", "ngram"])
@pytest.mark.parametrize("k", DRAFTS)
def test_replay_is_exact(replay, truth, name, method, k):
    """The published table leaves out requests below 8 tokens; walking the file does the rest to the last digit."""
    recording, published = replay(name, method).recording(), truth(name, method, k)
    long = recording.decoded_tokens >= 7
    requests = recording.table()
    found = walk(recording.tape(k), requests, k)
    assert found.steps[long].sum() == published["steps"]
    assert found.tokens[long].sum() / found.steps[long].sum() == pytest.approx(published["tokens_per_step"], abs=5.1e-5)
    assert found.request_sd == pytest.approx(published["req_sd"], abs=0.003)
    assert found.drafted_tokens / found.steps.sum() == pytest.approx(published["drafted_per_step"], abs=2e-4)
    assert found.drafted_steps / found.steps.sum() == pytest.approx(published["frac_steps_with_draft"], abs=1e-4)
    assert 1 + replay(name, method).survival(k).sum() == pytest.approx(published["tokens_per_step"], abs=2e-4)


THREE_ERRORS = [
    ("gsm8k", "eagle", 0.018),
    ("gsm8k", "ngram", 0.015),
    ("sharegpt", "eagle", 0.060),
    ("sharegpt", "ngram", 0.054),
]


@pytest.mark.parametrize(("name", "method", "tolerance"), THREE_ERRORS)
def test_replay_on_rows_of_similar_length_keeps_the_mean(replay, truth, name, method, tolerance):
    """Rows draw recordings with replacement: three bootstrap standard errors of the data set."""
    model = replay(name, method)
    requests = model.recording().table()
    found = walk(model.tape(requests, 5, Streams(3)), requests, 5)
    assert found.tokens_per_step == pytest.approx(truth(name, method, 5)["tokens_per_step"], rel=tolerance)


@pytest.mark.parametrize("name", SETS)
def test_regime_profiles_reproduce_the_data_they_were_fitted_to(replay, name):
    """In-sample, on the data's own output lengths, at every K up to 10; the model's own noise is about 0.2 %."""
    recording = replay(name, "eagle").recording()
    measured, expected = recorded_moments(recording), expected_moments(Regime(profile=name), recording)
    assert expected.tokens_per_step == pytest.approx(measured.tokens_per_step, rel=0.006)
    assert expected.request_sd == pytest.approx(measured.request_sd, rel=0.05)
    assert expected.lag_correlation == pytest.approx(measured.lag_correlation, abs=0.02)


@pytest.mark.parametrize(("name", "worst"), [("gsm8k", 0.015), ("sharegpt", 0.075)])
def test_ngram_profiles_are_as_rough_as_stated(replay, truth, name, worst):
    lengths = replay(name, "ngram").recording().table().output_tokens
    requests = table(np.tile(lengths, 10))
    tape = NgramMarkov(profile=name).tape(requests, 10, Streams(7))
    for k in DRAFTS:
        found, measured = walk(tape, requests, k), truth(name, "ngram", k)
        assert abs(found.tokens_per_step / measured["tokens_per_step"] - 1) < worst
        drafted = found.drafted_tokens / found.steps.sum()
        assert drafted == pytest.approx(measured["drafted_per_step"], rel=0.2)


@pytest.mark.parametrize(("name", "other"), [("gsm8k", "sharegpt"), ("sharegpt", "gsm8k")])
def test_level_moves_one_profile_to_the_mean_of_the_other(replay, name, other):
    """The mean at K=3 is met, other K follow: 1 % to K=5, 3 % to K=10. The spread is not the other's."""
    recording = replay(other, "eagle").recording()
    measured = recorded_moments(recording)
    level = Level(tokens_per_step=float(measured.tokens_per_step[2]), num_speculative_tokens=3)
    found = expected_moments(Regime(profile=name, level=level), recording)
    assert found.tokens_per_step[:5] == pytest.approx(measured.tokens_per_step[:5], rel=0.01)
    assert found.tokens_per_step == pytest.approx(measured.tokens_per_step, rel=0.03)
    assert not 0.7 < found.request_sd[4] / measured.request_sd[4] < 1.4


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_shipped_parameters_are_what_the_command_fits(replay, name):
    """They come from the fit, not from a hand; rounding apart."""
    found, shipped = Regime(parameters=fit_regime(replay(name, "eagle").recording())), Regime(profile=name)
    assert found.survival(10) == pytest.approx(shipped.survival(10), abs=2e-4)
