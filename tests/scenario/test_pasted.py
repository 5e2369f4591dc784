"""vLLM configs pasted into a scenario."""

import pytest

NOTHING_SHARED = (
    "all but no effect: no prompts of this workload begin alike, so only preempted requests find blocks again"
)
HEAD = "model: llama-3.1-8b\nhardware: h100-sxm\narms:\n  plain: {}\n"


def test_keys_without_effect_are_reported_with_their_place(load) -> None:  # type: ignore[no-untyped-def]
    text = HEAD + (
        "  e:\n"
        "    speculative_config: {method: eagle3, model: head, num_speculative_tokens: 2, disable_by_batch_size: 8,\n"
        "                         revision: main}\n"
        "    acceptance: {kind: iid, rate: 0.6}\n"
        "engine:\n"
        "  max-num-seqs: 32\n"
        "  trust_remote_code: true\n"
        "  quantization: fp8\n"
        "  enable_prefix_caching: true\n"
        "  pipeline_parallel_size: 1\n"
        "  dtype: bfloat16\n"
    )
    loaded = load(text)
    assert loaded.notes == (
        "s.yaml:11:3: engine.trust_remote_code: accepted, no effect",
        "s.yaml:12:3: engine.quantization: accepted, no effect; say model.weight_dtype instead",
        "s.yaml:6:82: arms.e.speculative_config.disable_by_batch_size: accepted, no effect, as in vLLM V1; "
        "use num_speculative_tokens_per_batch_size",
        "s.yaml:7:26: arms.e.speculative_config.revision: accepted, no effect",
        "s.yaml:15:10: engine.dtype: accepted, no effect: 16-bit formats cost the same",
    )
    assert loaded.scenario.engine.max_num_seqs == 32
    assert loaded.scenario.arms["e"].speculative_config.model == "head"


def test_vllm_spelling_of_the_kv_cache_format(load) -> None:  # type: ignore[no-untyped-def]
    assert load(HEAD + "engine: {kv_cache_dtype: fp8_e4m3}\n").scenario.model.kv_cache_dtype == "fp8"


def test_the_table_of_k_by_batch_size_pastes_unchanged(load) -> None:  # type: ignore[no-untyped-def]
    table = "num_speculative_tokens_per_batch_size: [[1, 8, 3], [9, 64, 1], [65, 4096, 0]]"
    arm = (
        f"speculative_config: {{method: ngram, num_speculative_tokens: 3, {table}}}, acceptance: {{kind: iid, rate: 1}}"
    )
    config = load(HEAD + f"  e: {{{arm}}}\n").scenario.arms["e"].speculative_config
    assert config.num_speculative_tokens_per_batch_size == ((1, 8, 3), (9, 64, 1), (65, 4096, 0))


def test_the_json_text_of_the_command_line_pastes_too(load) -> None:  # type: ignore[no-untyped-def]
    config = '{"method": "eagle3", "num_speculative_tokens": 4, "quantization": "fp8"}'
    loaded = load(HEAD + f"  e: {{speculative_config: '{config}', acceptance: {{kind: iid, rate: 0.6}}}}\n")
    assert loaded.scenario.arms["e"].speculative_config.max_draft_tokens == 4
    assert [note.split(": ")[1] for note in loaded.notes] == ["arms.e.speculative_config.quantization"]


@pytest.mark.parametrize(
    ("model", "method"),
    [("yuhuili/EAGLE3-LLaMA3.1", "eagle3"), ("yuhuili/EAGLE-LLaMA3.1", "eagle"), ("llama-3.2-1b", "draft_model")],
)
def test_a_missing_method_is_inferred_as_vllm_does_and_said(load, model: str, method: str) -> None:  # type: ignore[no-untyped-def]
    arm = f"{{speculative_config: {{model: {model}, num_speculative_tokens: 2}}, acceptance: {{kind: iid, rate: 0.6}}}}"
    loaded = load(HEAD + f"  e: {arm}\n")
    assert loaded.scenario.arms["e"].speculative_config.method == method
    assert f"no method given: taken as {method}" in loaded.notes[0]


def synthetic(extra: str, acceptance: str = "") -> str:
    config = f"{{method: eagle3, num_speculative_tokens: 3, rejection_sample_method: synthetic, {extra}}}"
    return HEAD + f"  e: {{speculative_config: {config}{acceptance}}}\n"


def test_synthetic_acceptance_states_the_arms_acceptance(load) -> None:  # type: ignore[no-untyped-def]
    rates = load(synthetic("synthetic_acceptance_rates: [0.8, 0.5, 0.2]"))
    assert rates.scenario.arms["e"].acceptance.kind == "per_position"
    assert rates.scenario.arms["e"].acceptance.rates == (0.8, 0.5, 0.2)
    length = load(synthetic("synthetic_acceptance_length: 2.5, synthetic_acceptance_rates: null"))
    assert length.scenario.arms["e"].acceptance.kind == "length"
    assert length.scenario.arms["e"].acceptance.survival(3).sum() == pytest.approx(1.5, abs=1e-9)
    assert (rates.notes, length.notes) == ((), ())


def test_contradictory_acceptance_is_an_error(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = synthetic("synthetic_acceptance_rates: [0.8, 0.5, 0.2]", ", acceptance: {kind: iid, rate: 0.5}")
    (problem,) = problems_of(text)
    assert problem.key == "arms.e.speculative_config.synthetic_acceptance_rates"
    assert problem.message == "contradicts arms.e.acceptance; allowed: one of them"
    both = problems_of(synthetic("synthetic_acceptance_rates: [0.8, 0.5, 0.2], synthetic_acceptance_length: 2.5"))
    assert [p.message for p in both] == ["contradicts synthetic_acceptance_rates; allowed: one of them"]


def test_varying_a_key_without_effect_is_reported(load) -> None:  # type: ignore[no-untyped-def]
    (note,) = load(HEAD + "sweep: {vary: {engine.enable_prefix_caching: [true, false]}}\n").notes
    assert note == (f"s.yaml:5:46: sweep.vary.engine.enable_prefix_caching: {NOTHING_SHARED}")
