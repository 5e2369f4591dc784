"""Notes and errors about prefix caching, shared prefixes and sessions."""

import json
from pathlib import Path

import pytest

HEAD = "model: llama-3.1-8b\nhardware: h100-sxm\narms: {plain: {}}\nsweep: {replicates: 1}\n"
SESSIONS = "arrivals: {kind: sessions, turns: {kind: fixed, value: 4}, session_rate: 1}"


def notes(load, text: str) -> list[str]:  # type: ignore[no-untyped-def]
    return [note.removeprefix("s.yaml:") for note in load(HEAD + text).notes]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (f"workload: {{{SESSIONS}}}\nengine: {{enable_prefix_caching: false}}\n",
         "6:33: engine.enable_prefix_caching: off although prompts begin alike: every prompt is computed in full"),
        ("workload: {arrivals: {kind: closed, max_concurrency: 2}, shared_prefix: 15}\n",
         "5:73: workload.shared_prefix: 15 tokens do not fill a KV block of 16: they are never found in the cache"),
        ("workload: {arrivals: {kind: closed, max_concurrency: 2}, shared_prefix: 99,"
         " classes: [{name: a, share: 1, shared_prefix: 50}]}\n",
         "5:73: workload.shared_prefix: no effect: every class has its own"),
        (f"workload: {{{SESSIONS}}}\nengine: {{max_model_len: 3000}}\n",
         "5:46: workload.arrivals.turns: a typical session grows to about 5,120 tokens, "
         "but engine.max_model_len = 3000: a session ends at the turn that does not fit"),
    ],
)  # fmt: skip
def test_notes(load, text: str, note: str) -> None:  # type: ignore[no-untyped-def]
    assert note in notes(load, text)


def test_nothing_is_said_where_all_is_well(load) -> None:  # type: ignore[no-untyped-def]
    assert notes(load, f"workload: {{{SESSIONS}, shared_prefix: {{tokens: 800, count: 3}}}}\n") == []


def test_block_hashes_without_effect_are_reported(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    line = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({**line, "timestamp": 100 * i}) for i in range(40)))
    workload = "workload: {trace: t.jsonl, arrivals: {kind: trace}%s}\n"
    assert not any("hash_ids" in note for note in notes(load, workload % ""))
    for other in (", shared_prefix: 99", ", prompt_tokens: {kind: fixed, value: 9}"):
        assert any("workload.trace: hash_ids have no effect" in note for note in notes(load, workload % other))


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ("{kind: sessions, turns: {kind: fixed, value: 4}}", "allowed: one of session_rate"),
        ("{kind: sessions, turns: {kind: fixed, value: 4}, session_rate: 1, max_concurrent_sessions: 3}",
         "allowed: one of session_rate"),
        ("{kind: sessions, turns: {kind: fixed, value: 4}, session_rate: 1, ramp_s: 3}", "ramp_s goes with"),
        ("{kind: sessions, turns: {kind: fixed, value: 20000}, session_rate: 1}", "allowed: at most 10,000"),
        ("{kind: sessions, turns: {kind: trace}, session_rate: 1}", "kind trace says nothing about turns"),
    ],
)  # fmt: skip
def test_errors(problems_of, arrivals: str, message: str) -> None:  # type: ignore[no-untyped-def]
    assert any(message in problem.message for problem in problems_of(f"{HEAD}workload: {{arrivals: {arrivals}}}\n"))
