"""Settings of look-ups in tokens and acceptance computed from tokens, against one another."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from sim.acceptance.walk import walk
from sim.scenario.build import simulate
from sim.scenario.files import shipped_folder
from sim.scenario.load import load_scenario

HEAD = "model: llama-3.1-8b\nhardware: h100-sxm\nworkload: {num_requests: 300}\n"
ARM = "arms: {plain: {}, e: {speculative_config: {method: %s, num_speculative_tokens: 3%s}, acceptance: %s}}\n"
STATED, COMPUTED = "{kind: iid, rate: 0.5}", "{kind: stream_replay, path: s.jsonl}"


@pytest.fixture(autouse=True)
def streams(tmp_path: Path) -> None:
    shutil.copy(shipped_folder() / "streams" / "code-editing.jsonl", tmp_path / "s.jsonl")
    (tmp_path / "labels.csv").write_text("prompt_tokens,output_tokens,labels\n2,3,0 1 0 1 0\n")
    (tmp_path / "bad.jsonl").write_text(
        '{"prompt_token_ids": [1]}\n{"prompt_token_ids": [-1], "output_token_ids": [2]}\n'
    )


def keys(notes: tuple[str, ...]) -> list[str]:
    return [note.split(": ")[1].rpartition(".")[2] for note in notes]


@pytest.mark.parametrize(
    ("method", "settings", "idle"),
    [
        ("ngram", "", []),
        ("ngram", ", prompt_lookup_max: 4", ["prompt_lookup_max"]),
        ("ngram", ", prompt_lookup_min: 3, occurrence: latest", ["prompt_lookup_min", "occurrence"]),
        ("suffix", ", suffix_decoding_max_spec_factor: 2.0", ["suffix_decoding_max_spec_factor"]),
        ("rest", ", max_token_span: 8", ["max_token_span"]),
    ],
)
def test_look_up_settings_without_tokens_are_reported(load, method, settings, idle) -> None:  # type: ignore[no-untyped-def]
    assert keys(load(HEAD + ARM % (method, settings, STATED)).notes) == idle
    assert load(HEAD + ARM % (method, settings, COMPUTED)).notes == ()


def test_varying_an_idle_setting_is_reported(load) -> None:  # type: ignore[no-untyped-def]
    vary = "sweep: {vary: {arms.e.speculative_config.prompt_lookup_max: [2, 4]}}\n"
    (note,) = load(HEAD + ARM % ("ngram", "", STATED) + vary).notes
    assert "sweep.vary.arms.e.speculative_config.prompt_lookup_max: no effect" in note
    assert load(HEAD + ARM % ("ngram", "", COMPUTED) + vary).notes == ()


def test_relabelled_streams_cannot_share_a_tree(load) -> None:  # type: ignore[no-untyped-def]
    relabelled = COMPUTED.replace("s.jsonl", "labels.csv")
    (note,) = load(HEAD + ARM % ("suffix", "", relabelled)).notes
    assert "no effect of suffix_decoding_max_cached_requests" in note
    assert load(HEAD + ARM % ("suffix", ", suffix_decoding_max_cached_requests: 0", relabelled)).notes == ()


def test_faults_of_the_file_are_told_before_the_run(problems_of) -> None:  # type: ignore[no-untyped-def]
    problems = problems_of(HEAD + ARM % ("ngram", "", COMPUTED.replace("s.jsonl", "bad.jsonl")))
    messages = [problem.message for problem in problems]
    assert [problem.key for problem in problems] == ["arms.e.acceptance.path"] * 2
    assert "bad.jsonl:1: output_token_ids: missing" in messages[0]
    assert "bad.jsonl:2: prompt_token_ids: expected token ids" in messages[1]
    (problem,) = problems_of(HEAD + ARM % ("rest", "", COMPUTED.replace("s.jsonl", "labels.csv")))
    assert "needs real token ids" in problem.message


def test_a_run_replays_the_very_requests_with_the_settings_of_the_arm(load) -> None:  # type: ignore[no-untyped-def]
    """Every request once: drafts accepted in the run are those that a walk over the file accepts."""
    workload = "workload: {trace: s.jsonl, arrivals: {kind: closed, max_concurrency: 8}, num_requests: 80}\n"
    head = HEAD.replace("workload: {num_requests: 300}\n", workload)
    for shortest in (2, 5):
        loaded = load(head + ARM % ("ngram", f", prompt_lookup_min: {shortest}, prompt_lookup_max: 5", COMPUTED))
        steps = simulate(loaded.scenario, "e", 0, loaded.base_dir).steps
        recording = loaded.scenario.arms["e"].located(loaded.base_dir).acceptance.recording(3)
        found = walk(recording.tape(3), recording.table(), 3)
        assert steps.draft_tokens.sum() == found.drafted_tokens
        assert steps.accepted_tokens.sum() == found.accepted_counts @ np.arange(4)


@pytest.mark.parametrize("name", ["ngram-stream", "suffix", "rest"])
def test_shipped_scenarios_on_streams_are_without_remarks(name: str) -> None:
    loaded = load_scenario(str(shipped_folder() / "methods" / f"{name}.yaml"))
    assert loaded.notes == ()
    (computed, *_) = [arm.located(loaded.base_dir) for arm in loaded.scenario.arms.values() if arm.speculates]
    assert computed.acceptance.survival(3)[0] > 0.2
