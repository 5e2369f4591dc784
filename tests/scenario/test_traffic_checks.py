"""The workload against its trace, the context and the engine: errors and notes with their places."""
# ruff: noqa: E501  # one case a line

import pytest

HEAD = "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {max_model_len: 4096, max_num_seqs: 64}\narms: {plain: {}}\n"


def notes(load, text: str) -> list[str]:  # type: ignore[no-untyped-def]
    return [note.removeprefix("s.yaml:") for note in load(HEAD + text + "sweep: {vary: {}}\n").notes]


@pytest.mark.parametrize(
    ("workload", "where", "key", "message"),
    [
        ("{prompt_tokens: {kind: fixed, value: 4096}}", "5:48", "workload.prompt_tokens.value",
         "found 4096; allowed: below engine.max_model_len = 4096"),
        ("{classes: [{name: a, share: 1, prompt_tokens: {kind: fixed, value: 9k}}]}", "5:78",
         "workload.classes[0].prompt_tokens.value", "found 9000; allowed: below engine.max_model_len = 4096"),
        ("{trace: nowhere.csv}", "5:19", "workload.trace", ""),
        ("{trace: azure2023-conv, arrivals: {kind: trace}, num_requests: 500000}", "5:74", "workload.num_requests",
         "found 500000; the trace window has"),
        ("{prompt_tokens: {kind: trace}}", "5:27", "workload.prompt_tokens", "kind trace needs workload.trace"),
        ("{classes: [{name: a, share: 1}, {name: a, share: 1}]}", "5:21", "workload.classes", "class names must differ"),
        ("{classes: [{name: a, share: 0}]}", "5:39", "workload.classes[0].share", "found 0; allowed: above 0"),
        ("{num_requests: 5, warmup_requests: 5}", "5:11", "workload", "warmup_requests + cooldown_requests (5) leave none"),
        ("{num_requests: 0}", "5:26", "workload.num_requests", "found 0; allowed: above 0"),
        ("{arrivals: {kind: poisson, request_rate: 0}}", "5:52", "workload.arrivals.request_rate", "found 0"),
    ],
)  # fmt: skip
def test_errors(problems_of, workload: str, where: str, key: str, message: str) -> None:  # type: ignore[no-untyped-def]
    problems = problems_of(HEAD + f"workload: {workload}\nsweep: {{vary: {{}}}}\n")
    assert [(p.where, p.key) for p in problems] == [(f"s.yaml:{where}", key)]
    assert problems[0].message.startswith(message)


def test_long_draws_and_idle_users_are_notes(load) -> None:  # type: ignore[no-untyped-def]
    prompt = "prompt_tokens: {kind: lognormal, mean: 700, cv: 1, max: 8000}"
    assert notes(load, f"workload: {{{prompt}}}\n") == [
        "5:27: workload.prompt_tokens: up to 8000 tokens, but engine.max_model_len = 4096: such requests are rejected and "
        "counted"
    ]
    assert notes(load, "workload: {output_tokens: {kind: fixed, value: 5000}}\n") == [
        "5:27: workload.output_tokens: up to 5000 tokens, but engine.max_model_len = 4096: such requests are cut there"
    ]
    closed = "arrivals: {kind: closed, max_concurrency: 100}"
    assert notes(load, f"workload: {{{closed}, num_requests: 90}}\n") == [
        "5:54: workload.arrivals.max_concurrency: 100 users, but engine.max_num_seqs = 64: the rest wait",
        "5:74: workload.num_requests: 90 requests for 100 users: some have none",
    ]


def test_unused_parts_are_notes(load) -> None:  # type: ignore[no-untyped-def]
    fixed = "{kind: fixed, value: 9}"
    text = (
        "workload:\n  trace: azure2023-conv\n"
        f"  prompt_tokens: {fixed}\n  output_tokens: {fixed}\n"
        f"  classes: [{{name: a, share: 1, speculate: false, prompt_tokens: {fixed}}}]\n"
    )
    assert notes(load, text) == [
        "6:10: workload.trace: no effect: neither arrivals nor lengths are of kind trace",
        "7:18: workload.prompt_tokens: no effect: every class has its own",
        "9:44: workload.classes[0].speculate: no effect: no arm speculates",
    ]
