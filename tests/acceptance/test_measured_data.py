"""Kinds against the measured sequences (not part of the project; skipped where they are absent)."""

import csv

import numpy as np
import pytest

from sim.acceptance.ngram_markov import NgramMarkov
from sim.acceptance.regime import Level, Regime
from sim.acceptance.sequence_replay import SequenceReplay
from sim.acceptance.walk import walk
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


def request_sd(found, shortest):
    """Standard deviation over requests of tokens per step, of requests of at least `shortest` decoded tokens."""
    long = found.tokens >= shortest
    return float((found.tokens[long] / found.steps[long]).std())


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
    assert request_sd(found, 20) == pytest.approx(published["req_sd"], abs=0.003)
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


#: Error of tokens per step in per cent that the parameters are known to leave (fitted in-sample), by K, and the request
#: standard deviation at K=5.
KNOWN = {
    "gsm8k": ({1: -0.1, 2: 0.5, 3: 1.7, 4: 1.6, 5: 2.1, 7: 2.4, 10: 2.8}, 0.34),
    "sharegpt": ({1: -0.1, 2: 0.0, 3: -0.5, 4: 0.5, 5: 2.1, 7: 2.5, 10: 1.8}, 0.48),
}


@pytest.mark.parametrize("name", SETS)
def test_regime_profiles_reproduce_the_data_they_were_fitted_to(replay, truth, name):
    """On the data's own output lengths; 3 standard errors of a draw of 300 requests (known errors: such a draw)."""
    lengths = replay(name, "eagle").recording().table().output_tokens
    requests = table(np.tile(lengths, 10))
    tape = Regime(profile=name).tape(requests, 10, Streams(7))
    known, sd = KNOWN[name]
    for k, error in known.items():
        found, measured = walk(tape, requests, k), truth(name, "eagle", k)["tokens_per_step"]
        one_draw = found.tokens_per_step_error * np.sqrt(10)
        assert abs(found.tokens_per_step - measured * (1 + error / 100)) < 3 * one_draw
        assert abs(found.tokens_per_step / measured - 1) < 0.04
    assert request_sd(walk(tape, requests, 5), 20) == pytest.approx(sd, abs=3 * sd / np.sqrt(2 * len(lengths)))


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


@pytest.mark.parametrize(("name", "other", "shift"), [("gsm8k", "sharegpt", -0.24), ("sharegpt", "gsm8k", 0.15)])
def test_level_moves_one_profile_to_the_mean_of_the_other(truth, name, other, shift):
    """The mean at K=3 is met, other K follow within a few per cent."""
    target = truth(other, "eagle", 3)["tokens_per_step"]
    model = Regime(profile=name, level=Level(tokens_per_step=target, num_speculative_tokens=3))
    assert model.shift() == pytest.approx(shift, abs=0.03)
    for k in (1, 2, 3, 4, 5):
        measured = truth(other, "eagle", k)["tokens_per_step"]
        assert 1 + model.survival(k).sum() == pytest.approx(measured, rel=0.02)
