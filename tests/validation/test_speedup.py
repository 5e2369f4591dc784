"""The suite `speedup` on made-up tables: parsing, solving, gates, what is listed; and the command."""

import pytest
from click.testing import CliRunner

from sim.cli.validate import validate
from sim.validation.published import read_published
from sim.validation.scores import Gate, Score, summarise
from sim.validation.speedup import Speedups, run_speedups
from sim.validation.speedup_findings import Stop, k_sweeps, stops, trends
from sim.validation.speedup_gates import speedup_gates
from sim.validation.speedup_report import render_speedup
from sim.validation.time_shares import score_shares


def run(publish, *changes: dict[str, str]) -> Speedups:
    return run_speedups(publish(*({"notes": "clones"} | change for change in changes)))


def test_a_table_of_our_own_predictions_has_no_error(publish):
    first = run(publish, {}).scores[0]
    again = run(publish, {"speedup": repr(first.predicted)}).scores[0]
    assert again.error == pytest.approx(0.0, abs=1e-9)
    assert again.inside
    assert again.naive_error is not None
    assert again.naive_error > 5  # datasheet peaks and no fixed costs make speculation look better


def test_the_smallest_load_sets_an_acceptance_that_is_not_stated(publish):
    """Speed-ups that our own simulation gives at a known mean: the mean, and so the other load, are found again."""
    known = run(publish, {}, {"batch_or_concurrency": "8"}).scores
    blank = [
        {"mean_accepted_len": "", "batch_or_concurrency": batch, "speedup": repr(score.predicted)}
        for batch, score in zip(("1", "8"), known, strict=True)
    ]
    suite = run(publish, *blank)
    assert [len(found.scores) for found in suite.found] == [0, 1]
    assert suite.found[0].tokens_per_step == pytest.approx(2.3, rel=0.02)  # a request has few steps
    assert suite.scores[0].error == pytest.approx(0.0, abs=0.2)
    assert "solved at 1" in suite.scores[0].remarks


def test_a_speedup_that_no_acceptance_explains_is_listed(publish):
    blank = {"mean_accepted_len": "", "speedup": "9"}
    suite = run(publish, blank, blank | {"batch_or_concurrency": "8"})
    assert suite.found == ()
    assert {one.reason for one in suite.not_run} == {"no acceptance explains the speed-up at 1"}


def test_decomposed_steps_and_their_trend(publish):
    steps = {
        "metric": "ms per token per step (decode only)", "gpu": "A100", "n_gpus": "8", "plain_value": "8.3",
        "engine": "gpt-fast + FlashInfer, CUDA graphs", "k_or_tree": "2", "input_len": "8000", "speedup": "1.2",
        "notes": "gamma*T_draft=2.0 ms, T_verify=9.5 ms",
    }  # fmt: skip
    suite = run(publish, steps, steps | {"batch_or_concurrency": "64", "speedup": "1.9"}, steps | {"notes": "none"})
    assert [score.quantity for score in suite.found[0].scores] == ["speed-up", "T_verify/T_plain", "plain"]
    (trend,) = trends(suite.found)
    assert trend.measured == pytest.approx(1.9 / 1.2)
    assert trend.moves
    assert "not stated" in suite.not_run[0].reason


def test_sweeps_over_k_find_the_best_and_what_the_prediction_would_lose(publish):
    rows = [{"k_or_tree": str(k), "speedup": str(s), "mean_accepted_len": "2.3"} for k, s in ((3, 1.6), (4, 1.7))]
    suite = run(publish, *rows, {"k_or_tree": "5", "speedup": "1.5"})
    (sweep,) = k_sweeps(suite.found)
    assert (sweep.ks, sweep.predicted, sweep.measured) == ((3, 4, 5), 3, 4)  # the same mean: the shortest is cheapest
    assert sweep.regret == pytest.approx(100 * (1 - 1.6 / 1.7))
    gates = {gate.name: gate for gate in speedup_gates(suite, [])}
    assert gates["best K of sweeps, measured K apart"].met
    assert not gates["regret of the predicted K"].met
    assert gates["time shares, worst"].verdict == "no data"


def test_figures_of_another_simulator_stand_beside_ours_and_are_not_scored(publish):
    simulated = {"metric": "SIMULATED throughput ratio", "trust": "2", "speedup": "1.6", "engine": "theirs"}
    suite = run(publish, {}, simulated)
    assert [score.peer for score in suite.scores] == [1.6]
    assert suite.not_run == ()


def test_crossings_beyond_the_measured_loads():
    def stop(predicted: float | None, measured: float | None) -> Stop:
        return Stop("tree", predicted, measured, tree=True, largest=128)

    assert stop(20.0, 40.0).factor == 2.0
    assert stop(20.0, None).factor is None
    assert stops([]) == []


def test_shares_are_scored_where_the_folder_has_their_source(publish, tmp_path):
    source = "arXiv 2601.11580 / specdecode-bench.github.io"
    folder = publish({"source": source, "dataset": "GSM8K"})
    found = score_shares(read_published(folder), folder)
    assert len(found) == 48
    assert max(abs(score.error) for score in found) < 10
    assert score_shares(read_published(publish({})), tmp_path) == []


def test_summary_and_verdicts():
    scores = [
        Score("a", "g", "speed-up", "1", p, 1.0, low, high) for p, low, high in ((1.1, 0.9, 1.2), (0.8, 0.7, 0.9))
    ]
    found = summarise(scores)
    assert found is not None
    assert (found.points, found.mape, found.bias) == (2, pytest.approx(15.0), pytest.approx(-5.0))
    assert found.worst == pytest.approx(-20.0)
    assert found.inside == 0.5
    assert summarise([]) is None
    assert Gate("g", 3.0, -2.0).verdict == "met"
    assert Gate("g", 3.0, 4.5).verdict == "missed by 1.5 %"
    share = Score("a", "g", "draft share", "1", 0.12, 0.10)
    assert share.error == pytest.approx(2.0)  # points


@pytest.mark.usefixtures("without_matplotlib")
def test_the_page_lists_every_row_and_the_command_writes_it(publish, tmp_path):
    folder = publish({"notes": "clones"}, {"target_model": "Nobody-1B"}, {"plain_value": "130", "spec_value": "195"})
    text = render_speedup(run_speedups(folder), [])
    for part in ("case-0", "unknown model 'Nobody-1B' (1): case-1", "case-2", "| plain |", "missed by", "no data"):
        assert part in text
    out = tmp_path / "pages" / "speedup.md"
    result = CliRunner().invoke(validate, ["speedup", "--data", str(folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "clones, EAGLE-3, K = 3, mean" in result.output
    assert out.read_text() == text


@pytest.mark.usefixtures("without_matplotlib")
def test_all_runs_what_the_folder_has_and_writes_an_overview(publish, tmp_path):
    folder, out = publish({}), tmp_path / "pages"
    result = CliRunner().invoke(validate, ["all", "--data", str(folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "speedup.md"]
    overview = (out / "README.md").read_text()
    assert "### speedup:" in overview
    assert "| speed-up | eagle3 chain | vllm-0.10 | Hopper | " in overview
    assert "![" not in overview
    assert "pip install 'specsim[plots]'" in result.output
    assert "What was fitted" in overview
    (tmp_path / "empty").mkdir()
    empty = CliRunner().invoke(validate, ["all", "--data", str(tmp_path / "empty"), "--out", str(out)])
    assert empty.exit_code == 2
    assert "has none of" in empty.output
