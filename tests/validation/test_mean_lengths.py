"""Means at other K and of trees, from made-up tables: what is known, what is predicted, what is not."""

import pytest
from click.testing import CliRunner

from sim.acceptance.regime import Level, Regime
from sim.cli.validate import validate
from sim.theory.tokens import alpha_from_tokens, expected_tokens
from sim.validation.as_published import UnrunnableError
from sim.validation.carried import carried, tree_from_chain
from sim.validation.mean_lengths import mean_scores, render_means

_EAGLE_25 = {"num_speculative_tokens": 25, "tree": {"kind": "named", "name": "eagle_25"}}


def write_means(folder, method: str, means: dict[int, float]):
    (folder / "acceptance").mkdir(exist_ok=True)
    rows = [f"some-model,{method},standard,{k},{mean}" for k, mean in means.items()]
    head = "model,method,rejection_sampling,num_speculative_tokens,mean_acceptance_length"
    (folder / "acceptance" / "my_acceptance_length.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder


def test_means_of_the_law_itself_are_predicted_without_error(tmp_path):
    law = Regime(profile="sharegpt", level=Level(tokens_per_step=2.4, num_speculative_tokens=3))
    means = {k: 1 + float(law.survival(k).sum()) for k in (1, 3, 5, 8)}
    found = mean_scores(write_means(tmp_path, "eagle3", means))
    assert [score.load for score in found.scores] == ["K = 1", "K = 5", "K = 8"]  # K = 3 is what is known
    assert all(abs(score.error) < 1e-3 for score in found.scores)
    assert all(score.naive is not None and abs(score.naive_error or 0) > 0.1 for score in found.scores)


def test_block_drafters_and_depths_beyond_the_profile_are_listed(tmp_path):
    found = mean_scores(write_means(tmp_path, "dspark", {3: 2.5, 7: 3.4}))
    assert found.scores == ()
    assert "block drafter" in found.not_run[0][1]
    assert render_means(found).startswith("## Not predicted")
    deep = mean_scores(write_means(tmp_path, "eagle3", {3: 2.5, 60: 3.4}))
    assert "not carried over from K = 3 to 60" in deep.not_run[0][1]


def test_rows_of_acceptance_only_serve_and_notes_may_state_another_k(publish, tmp_path):
    only = {"metric": "acceptance only", "speedup": "", "gpu": "", "engine": ""}
    folder = publish(
        only | {"k_or_tree": "3", "mean_accepted_len": "2.4"},
        only | {"k_or_tree": "3", "mean_accepted_len": "2.4", "batch_or_concurrency": "8"},
        only | {"k_or_tree": "5", "mean_accepted_len": "2.7"},
        only | {"k_or_tree": "5", "mean_accepted_len": "2.7", "temperature": "1"},  # another text
        only | {"source": "b", "k_or_tree": "7", "mean_accepted_len": "3.0", "notes": "AL K=3 2.6 -> K=7 3.0"},
        only | {"source": "c", "k_or_tree": "7", "mean_accepted_len": "3.0", "trust": "2"},
    )
    assert [score.name for score in mean_scores(folder).scores] == ["case-2", "case-4"]
    result = CliRunner().invoke(validate, ["acceptance", "--data", str(folder)])
    assert result.exit_code == 0, result.output
    assert "## Means at other K, and of trees" in result.output
    assert "case-4" in result.output


def test_a_tree_accepts_more_than_the_chain_it_contains(publish):
    """EAGLE-1, arXiv 2401.15077, table 5, Vicuna-13B on MT-Bench: 3.23 for the chain, 3.98 for the tree of 25 nodes."""
    only = {"metric": "acceptance only", "speedup": "", "method": "EAGLE", "engine": ""}
    chain, tree = only | {"k_or_tree": "chain"}, only | {"k_or_tree": "static tree"}
    folder = publish(chain | {"mean_accepted_len": "3.23"}, tree | {"mean_accepted_len": "3.98"})
    (score,) = mean_scores(folder).scores
    assert score.naive == pytest.approx(3.23)
    assert score.predicted > score.naive
    assert abs(score.error) < 3


def test_a_tree_of_best_guesses_is_the_chain():
    """One node a level: the rates are those of the chain, whatever the further ranks."""
    chain = {"num_speculative_tokens": 4, "tree": {"kind": "dynamic", "depth": 4, "top_k": 1}}
    assert tree_from_chain(2.5, 4, chain) == pytest.approx(2.5, rel=1e-6)
    with pytest.raises(UnrunnableError):
        tree_from_chain(7.0, 4, _EAGLE_25)


def test_lookup_is_carried_over_by_its_own_law():
    """A look-up that finds something finds more of it: the longer draft gains more than i.i.d. says."""
    iid = expected_tokens(alpha_from_tokens(3.5, 7), 13)
    assert carried(3.5, 7, 7, "ngram", "chat") == pytest.approx(3.5, rel=1e-4)
    assert carried(3.5, 7, 13, "ngram", "chat") > iid


def test_recordings_of_few_requests_are_listed(tmp_path):
    (tmp_path / "acceptance").mkdir()
    (tmp_path / "acceptance" / "few_accepted.csv").write_text(
        "request,method,prompt_tokens,output_tokens,degenerate,accepted\n0,eagle,20,9,0,abcabaaa\n"
    )
    result = CliRunner().invoke(validate, ["acceptance", "--data", str(write_means(tmp_path, "mtp", {3: 2.5, 1: 1.7}))])
    assert result.exit_code == 0, result.output
    assert "fewer than 40 requests show no spread (1): few_accepted.csv eagle" in result.output
