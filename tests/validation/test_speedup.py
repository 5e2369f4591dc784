"""The suite `speedup` on made-up tables: parsing, solving, gates, what is listed; and the command."""

import pytest
from click.testing import CliRunner

from sim.cli import run_command as command_line
from sim.cli.validate import validate
from sim.validation.carried import carried
from sim.validation.overview import of_speedup, render_overview
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


@pytest.mark.parametrize("suite", ["speedup", "all", "cases"])
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_run(suite, publish, tmp_path, monkeypatch):
    monkeypatch.setattr("sim.cli.validate.run_speedups", lambda _: pytest.fail("run first"))
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(validate, [suite, "--data", str(publish({})), "--out", str(tmp_path / "file" / "x")])
    assert result.exit_code == 2
    assert "cannot be written to" in result.output


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
    assert "has nothing to score" in empty.output


@pytest.mark.parametrize("suite", ["physics", "acceptance", "server", "speedup", "all"])
def test_without_data_every_suite_says_what_it_needs(suite, tmp_path):
    missing = CliRunner().invoke(validate, [suite])
    assert missing.exit_code == 2
    assert "--data DIR is missing" in missing.output
    for words in ("published/*.csv", "recorded_vllm/", "gpu_timings/", "acceptance/", "docs/reference/validate.md"):
        assert words in missing.output
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "other.csv").write_text("a,b\n1,2\n")
    for name in ("gpu_timings", "acceptance", "recorded_vllm"):
        (tmp_path / name).mkdir()
    empty = run_command([suite, "--data", str(tmp_path)]) if suite != "all" else 2
    assert empty == 2


def run_command(arguments: list[str]) -> int:
    """The exit code of `specsim validate ...`."""
    return command_line(["validate", *arguments])


def test_a_mean_that_is_not_stated_is_that_of_another_load_or_carried_over_from_another_k(publish):
    blank = {"mean_accepted_len": ""}
    suite = run(publish, {}, blank | {"batch_or_concurrency": "8"}, blank | {"k_or_tree": "5"})
    how = {found.case.row.case_id: found for found in suite.found}
    assert how["case-1"].acceptance == "2.3, stated at other loads"
    assert how["case-1"].tokens_per_step == 2.3
    assert "carried over from 2.3 at K = 3" in how["case-2"].acceptance
    assert 2.4 < how["case-2"].tokens_per_step < 2.9  # i.i.d. would say 2.68
    assert len(suite.scores) == 3


def test_a_sweep_over_k_without_means_is_solved_at_its_smallest_k(publish):
    """Speed-ups of our own at the means that are carried over: the mean, and the others, are found again."""
    means = {2: 1.9, 4: carried(1.9, 2, 4, "eagle3", "made up"), 7: carried(1.9, 2, 7, "eagle3", "made up")}
    known = run(publish, *({"k_or_tree": str(k), "mean_accepted_len": repr(mean)} for k, mean in means.items())).scores
    suite = run(
        publish,
        *(
            {"k_or_tree": str(k), "mean_accepted_len": "", "speedup": repr(score.predicted)}
            for k, score in zip(means, known, strict=True)
        ),
    )
    assert [found.acceptance.split(",")[0] for found in suite.found[:1]] == ["solved here"]
    assert suite.found[0].scores == ()
    for found in suite.found[1:]:
        assert "solved at K = 2" in found.acceptance
        assert found.tokens_per_step == pytest.approx(means[found.case.num_drafts], rel=0.02)
        assert found.speedup is not None
        assert abs(found.speedup.error) < 1.5  # a request has few steps


def test_advisory_rows_are_run_apart_and_move_no_target(publish):
    suite = run(publish, {}, {"trust": "3", "engine": "HF transformers", "speedup": "9"})
    alone = run(publish, {})
    assert [one.case.row.case_id for one in suite.advisory] == ["case-1"]
    assert len(suite.advisory_scores) == 1
    assert [gate.found for gate in speedup_gates(suite, [])] == [gate.found for gate in speedup_gates(alone, [])]
    assert "1 advisory rows apart" in render_overview([of_speedup(suite, [])])
    text = render_speedup(suite, [])
    assert text.index("## Advisory") < text.index("| case-1 |") < text.index("## Not run")
    assert "## Advisory" not in render_speedup(alone, [])


def test_repeated_measurements_are_curves_of_their_own(publish):
    tree = {"k_or_tree": "2/2/4", "mean_accepted_len": "", "speedup": "1.4"}
    suite = run(publish, tree, tree | {"speedup": "1.3"}, tree | {"batch_or_concurrency": "8", "speedup": "1.1"})
    assert [found.case.repeat for found in suite.found] == [0, 1, 0]
    assert len(stops(suite.found)) == 1
    assert "solved at 1" in suite.found[1].acceptance


def test_a_load_that_does_not_fit_leaves_the_others(publish):
    big = {"target_model": "Llama-3.1-70B", "mean_accepted_len": "2"}
    suite = run(publish, big | {"n_gpus": "1"}, big | {"n_gpus": "4"})
    assert [found.case.row.case_id for found in suite.found] == ["case-1"]
    assert [one.row.case_id for one in suite.not_run] == ["case-0"]


def test_theory_stands_in_for_models_that_cannot_be_described(publish):
    """c of the first row from its speed-up; the second is Omega / (K c + 1) with it."""
    row = {"target_model": "T5-XXL 11B", "engine": "T5X", "method": "draft model T5-small 77M", "trust": "3"}
    suite = run(
        publish,
        row | {"k_or_tree": "3", "acceptance_rate": "0.8", "speedup": "2.0"},
        row | {"k_or_tree": "5", "acceptance_rate": "0.6", "speedup": "1.5"},
        row | {"k_or_tree": "5", "acceptance_rate": "0.7/0.6", "speedup": "1.5"},
    )
    cost = ((1 - 0.8**4) / 0.2 / 2.0 - 1) / 3
    (score,) = suite.theory
    assert score.predicted == pytest.approx((1 - 0.6**6) / 0.4 / (5 * cost + 1))
    assert [one.row.case_id for one in suite.not_run] == ["case-0", "case-2"]
    assert "## Theory where the model cannot be described" in render_speedup(suite, [])
