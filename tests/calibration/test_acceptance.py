"""The fit of the two-regime law: parameters that were put in, predictions that come out."""

import csv
import gzip

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from sim.acceptance.recording import Recording, read_recording
from sim.acceptance.regime import Regime, RegimeParameters
from sim.calibration.acceptance import fit_regime
from sim.calibration.acceptance_moments import (
    EvenStreams,
    expected_moments,
    recorded_moments,
    recorded_walks,
    sampling_errors,
)
from sim.cli.fit_acceptance import fit_acceptance
from sim.cli.validate import acceptance
from sim.errors import CalibrationError
from sim.rng import Streams
from sim.validation.folder import NothingToScoreError
from sim.workload.requests import RequestTable

TRUTH = Regime(profile="sharegpt")


def recording(requests=240, seed=3, model=TRUTH):
    """A made-up recording: lengths of 60 to 300 tokens, drawn from a known law."""
    lengths = 60 + (Streams(seed).per_row("lengths", requests) * 240).astype(np.int64)
    zeros = np.zeros(requests, dtype=np.int64)
    table = RequestTable(zeros, zeros + 1, np.sort(lengths) + 1, zeros, np.ones(requests, dtype=bool))
    tape = model.tape(table, 16, Streams(seed)).accepted
    parts = [tape[at + 1 : at + count] for at, count in zip(table.output_offset, table.output_tokens, strict=True)]
    clipped = tuple(np.minimum(part, np.arange(len(part))[::-1]).astype(np.uint8) for part in parts)
    return Recording(clipped, None, table.output_tokens - 1)


@pytest.fixture(scope="module")
def made_up():
    return recording()


@pytest.fixture(scope="module")
def fitted(made_up):
    return fit_regime(made_up)


@pytest.mark.slow
def test_the_fit_reproduces_what_it_was_given(made_up, fitted):
    """The moments it was fitted to: tokens per step within 0.6 %, spread within 8 %, correlation within 0.02."""
    measured, expected = recorded_moments(made_up), expected_moments(Regime(parameters=fitted), made_up)
    assert expected.tokens_per_step == pytest.approx(measured.tokens_per_step, rel=0.006)
    assert expected.request_sd == pytest.approx(measured.request_sd, rel=0.08)
    assert expected.lag_correlation == pytest.approx(measured.lag_correlation, abs=0.02)


@pytest.mark.slow
def test_the_fit_predicts_other_requests_of_the_same_law(made_up, fitted):
    """Against the law that was put in, within 3 standard errors of the recording it learnt from."""
    errors, truth = sampling_errors(recorded_walks(made_up)), expected_moments(TRUTH, made_up)
    found = expected_moments(Regime(parameters=fitted), made_up)
    assert np.all(np.abs(found.tokens_per_step - truth.tokens_per_step) < 3 * errors.tokens_per_step)
    assert np.all(np.abs(found.request_sd - truth.request_sd) < 3 * errors.request_sd + 0.01)
    assert np.all(np.abs(found.lag_correlation - truth.lag_correlation) < 3 * errors.lag_correlation + 0.005)


def test_even_streams_spread_each_request_over_its_copies():
    rows = EvenStreams(0, copies=8).per_row("acceptance/request", 8 * 5).reshape(8, 5)
    assert np.array_equal(np.sort((rows * 8).astype(int), axis=0), np.arange(8)[:, None].repeat(5, axis=1))


def test_sampling_errors_match_the_ratio_estimator(made_up):
    walks = recorded_walks(made_up)
    exact = [found.tokens_per_step_error for found in walks]
    assert sampling_errors(walks).tokens_per_step == pytest.approx(exact, rel=4 / np.sqrt(400))


def test_parts_cover_all_requests(made_up):
    parts = [made_up.part(first, 2) for first in (0, 1)]
    assert sum(len(part.accepted) for part in parts) == len(made_up.accepted)
    assert abs(parts[0].decoded_tokens.mean() / parts[1].decoded_tokens.mean() - 1) < 0.02


def test_refusals(made_up):
    with pytest.raises(CalibrationError, match="20 are needed"):
        fit_regime(made_up.part(0, 20))
    lookup = Recording(made_up.accepted, made_up.accepted, made_up.decoded_tokens)
    with pytest.raises(CalibrationError, match="ngram_markov"):
        fit_regime(lookup)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, made_up):
    path = tmp_path_factory.mktemp("data") / "madeup_accepted.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["request", "method", "degenerate", "accepted", "drafted"])
        for request, sequence in enumerate(made_up.accepted):
            rows.writerow([request, "eagle", 0, "".join(chr(97 + count) for count in sequence), ""])
    return path.parent


@pytest.mark.slow
def test_the_command_prints_what_regime_takes(folder, made_up, fitted):
    assert np.array_equal(
        read_recording(folder / "madeup_accepted.csv.gz", None, False).decoded_tokens, made_up.decoded_tokens
    )
    arguments = [str(folder / "madeup_accepted.csv.gz"), "--description", "made up"]
    document = yaml.safe_load(CliRunner().invoke(fit_acceptance, arguments, catch_exceptions=False).output)
    assert (document["description"], document["requests"]) == ("made up", 240)
    parameters = RegimeParameters.model_validate(document["parameters"])
    assert Regime(parameters=parameters).survival(5) == pytest.approx(Regime(parameters=fitted).survival(5), abs=2e-3)


@pytest.mark.slow
def test_validate_acceptance_scores_a_folder_it_has_never_seen(folder, tmp_path):
    out = tmp_path / "report.md"
    result = CliRunner().invoke(acceptance, ["--data", str(folder), "-o", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.count("madeup eagle, regime fitted on") == 6
    text = out.read_text()
    for what in ("i.i.d., level at K=3", "regime gsm8k, level at K=3", "the other half itself", "sampling error, %"):
        assert what in text
    with pytest.raises(NothingToScoreError, match="nothing for the suite acceptance: it needs"):
        CliRunner().invoke(acceptance, ["--data", str(tmp_path)], catch_exceptions=False)
