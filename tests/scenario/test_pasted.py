"""vLLM configs pasted into a scenario."""

import pytest

from sim.errors import ScenarioError

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


def test_expert_parallelism_pastes_and_says_where_it_does_nothing(load) -> None:  # type: ignore[no-untyped-def]
    """Without data parallelism vLLM sums the experts' outputs by all-reduce, whatever its all-to-all backend."""
    experts = "model: gpt-oss-20b\nhardware: h100-sxm\narms: {plain: {}}\n"
    on = "engine: {tensor_parallel_size: 2, enable_expert_parallel: true, all2all_backend: deepep_low_latency}\n"
    loaded = load(experts + on)
    assert loaded.scenario.engine.enable_expert_parallel
    assert loaded.notes == ("s.yaml:4:65: engine.all2all_backend: accepted, no effect",)
    alone = load(experts + "engine: {enable_expert_parallel: true}\n")
    assert alone.notes[0].startswith(
        "s.yaml:4:34: engine.enable_expert_parallel: accepted, no effect: with tensor_parallel"
    )


def test_packed_attention_is_said_to_do_nothing_where_kernels_are_packed(load) -> None:  # type: ignore[no-untyped-def]
    packed = "arms: {plain: {}}\nmodel: llama-3.1-8b\ncost_model: {kind: roofline, attention_kernel: packed}\n"
    (note,) = load(packed + "hardware: h100-sxm\n").notes
    assert "cost_model.attention_kernel: no effect: the profile of H100-SXM (h100-sxm) has packed kernels" in note
    assert load(packed + "hardware: a100-sxm-80gb\n").notes == ()


def test_marlin_experts_are_said_to_do_nothing_where_there_is_nothing_to_do(load) -> None:  # type: ignore[no-untyped-def]
    head = "arms: {plain: {}}\ncost_model: {kind: roofline, experts_kernel: marlin}\n"
    for model, gpu, words in (
        ("gpt-oss-20b", "h100-sxm", None),
        ("llama-3.1-8b", "h100-sxm", "has no experts"),
        ("gpt-oss-20b", "l40s", "no effect: the profile of L40S has Marlin's kernels anyway"),
        ("mixtral-8x7b", "h100-sxm", "no effect: H100-SXM multiplies bf16 experts in their own format"),
    ):
        notes = load(head + f"model: {model}\nhardware: {gpu}\nengine: {{tensor_parallel_size: 4}}\n").notes
        found = [note for note in notes if "experts_kernel" in note]
        assert [words is not None and words in note for note in found] == [True] * (words is not None), (model, gpu)


def test_batch_waiting_needs_both_of_its_keys(load) -> None:  # type: ignore[no-untyped-def]
    both = "engine: {batch_wait_timeout_iters: 20, batch_wait_max_tokens_ratio: 0.9}\n"
    assert load(HEAD + both).notes == ()
    (note,) = load(HEAD + "engine: {batch_wait_timeout_iters: 20}\n").notes
    assert "engine.batch_wait_timeout_iters: no effect: prompts are held back only if batch_wait_max" in note


def test_captured_sizes_are_said_to_do_nothing_where_launches_are_not_priced(load) -> None:  # type: ignore[no-untyped-def]
    captured = "engine: {max_cudagraph_capture_size: 2048}\n"
    assert load(HEAD + captured).notes == ()
    assert load(HEAD + captured + "cost_model: {kind: roofline, engine: sglang, graphs: pad}\n").notes == ()
    for cost in ("{kind: roofline, engine: sglang}", "{kind: roofline, engine: trtllm}", "{kind: naive}"):
        (note,) = load(HEAD + captured + f"cost_model: {cost}\n").notes
        assert "engine.max_cudagraph_capture_size: accepted, no effect" in note
        assert ("engine trtllm captures no graphs for prompts" in note) == ("trtllm" in cost)


def test_an_unknown_engine_is_found_where_it_is_written(load) -> None:  # type: ignore[no-untyped-def]
    """Also beside the size of captured graphs, whose check asks the engine."""
    with pytest.raises(ScenarioError) as error:
        load(HEAD + "cost_model: {kind: roofline, engine: magicdek}\nengine: {max_cudagraph_capture_size: 8}\n")
    (problem,) = error.value.problems
    assert "cost_model.engine: unknown engine 'magicdek'; did you mean magicdec?" in str(problem)
    assert ":5:38: " in str(problem)


def test_drafts_that_are_expanded_are_never_beside_prompts(load) -> None:  # type: ignore[no-untyped-def]
    arm = "speculative_config: {method: ngram, num_speculative_tokens: 3}, acceptance: {kind: iid, rate: 0.5}"
    old = f"  e: {{{arm}}}\ncost_model: {{kind: roofline, engine: vllm-0.6}}\n"
    with pytest.raises(ScenarioError, match=r"engine\.enable_mixed_chunk: allowed with engine vllm-0\.6: false"):
        load(HEAD + old)
    load(HEAD + old + "engine: {enable_mixed_chunk: false}\n")
    load(HEAD + "cost_model: {kind: roofline, engine: vllm-0.6}\n")  # nothing drafts


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
    [
        ("yuhuili/EAGLE3-LLaMA3.1", "eagle3"),
        ("yuhuili/EAGLE-LLaMA3.1", "eagle"),
        ("llama-3.2-1b", "draft_model"),
        ("z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat", "dflash"),
    ],
)
def test_a_missing_method_is_inferred_as_vllm_does_and_said(load, model: str, method: str) -> None:  # type: ignore[no-untyped-def]
    arm = f"{{speculative_config: {{model: {model}, num_speculative_tokens: 2}}, acceptance: {{kind: iid, rate: 0.6}}}}"
    loaded = load(HEAD + f"  e: {arm}\n")
    assert loaded.scenario.arms["e"].speculative_config.method == method
    assert f"no method given: taken as {method}" in loaded.notes[0]


@pytest.mark.parametrize(
    ("algorithm", "method"), [("EAGLE3", "eagle3"), ("eagle", "eagle"), ("STANDALONE", "draft_model")]
)
def test_the_algorithms_of_sglang_are_methods(load, algorithm: str, method: str) -> None:  # type: ignore[no-untyped-def]
    keys = "speculative_num_steps: 3, speculative_eagle_topk: 1, speculative_draft_model_path: llama-3.2-1b"
    arm = (
        f"{{speculative_config: {{speculative_algorithm: {algorithm}, {keys}}}, acceptance: {{kind: iid, rate: 0.6}}}}"
    )
    config = load(HEAD + f"  e: {arm}\n").scenario.arms["e"].speculative_config
    assert (config.method, config.max_draft_tokens) == (method, 3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("speculative_algorithm: EAGLE33", "did you mean EAGLE3?"),
        ("speculative_algorithm: EAGLE3, method: eagle", "means method eagle3, which contradicts method eagle"),
    ],
)
def test_wrong_algorithms_are_one_complaint(problems_of, keys: str, message: str) -> None:  # type: ignore[no-untyped-def]
    arm = f"{{speculative_config: {{{keys}, num_speculative_tokens: 3}}, acceptance: {{kind: iid, rate: 0.6}}}}"
    (problem,) = problems_of(HEAD + f"  e: {arm}\n")
    assert problem.key == "arms.e.speculative_config.speculative_algorithm"
    assert message in problem.message


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


def verified(load, keys: str, rest: str = "", method: str = "eagle3"):  # type: ignore[no-untyped-def]
    config = f"{{method: {method}, num_speculative_tokens: 3, {keys}}}"
    return load(HEAD + f"  e: {{speculative_config: {config}, acceptance: {{kind: iid, rate: 0.6}}{rest}}}\n")


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ("rejection_sample_method: standard", "greedy_draft"),
        ("draft_sample_method: probabilistic", "rejection_sampling"),
        ("draft_sample_method: gumbel", "rejection_sampling"),
        ("rejection_sample_method: standard, draft_sample_method: probabilistic", "rejection_sampling"),
        ("rejection_sample_method: block, draft_sample_method: probabilistic", "block"),
        ("rejection_sample_method: strict", "exact_match"),
        ("rejection_sample_method: probabilistic", "rejection_sampling"),
        ("rejection_sample_method: probabilistic, draft_sample_method: greedy", "greedy_draft"),
    ],
)
def test_vllms_rejection_keys_are_the_arms_verification(load, keys: str, kind: str) -> None:  # type: ignore[no-untyped-def]
    loaded = verified(load, keys)
    assert (loaded.scenario.arms["e"].rule.kind, loaded.notes) == (kind, ())


def test_blocks_of_greedy_drafts_are_said_to_gain_nothing(load) -> None:  # type: ignore[no-untyped-def]
    loaded = verified(load, "rejection_sample_method: block")
    assert loaded.scenario.arms["e"].rule.kind == "greedy_draft"
    assert "judging blocks accepts no more" in loaded.notes[0]


def test_look_ups_have_no_probabilities_to_be_judged_by(load, problems_of) -> None:  # type: ignore[no-untyped-def]
    assert verified(load, "draft_sample_method: probabilistic", method="ngram").scenario.arms["e"].lossless
    config = "{method: ngram, num_speculative_tokens: 3}"
    for kind in ("block", "rejection_sampling"):
        arm = f"{{speculative_config: {config}, acceptance: {{kind: iid, rate: 1}}, verification: {{kind: {kind}}}}}"
        (problem,) = problems_of(HEAD + f"  e: {arm}\n")
        assert f"{kind} looks at the drafter's probabilities, but ngram has none" in problem.message


@pytest.mark.parametrize(
    ("keys", "rest", "message"),
    [
        ("rejection_sample_method: blokc", "", "found 'blokc'; allowed: standard, synthetic, block"),
        ("draft_sample_method: 3", "", "found 3; allowed: greedy, probabilistic"),
        (
            "rejection_sample_method: standard",
            ", verification: {kind: typical}",
            "means greedy_draft, which contradicts",
        ),
    ],
)
def test_contradictions_of_verification_are_errors(problems_of, keys: str, rest: str, message: str) -> None:  # type: ignore[no-untyped-def]
    config = f"{{method: eagle3, num_speculative_tokens: 3, {keys}}}"
    arm = f"{{speculative_config: {config}, acceptance: {{kind: iid, rate: 0.6}}{rest}}}"
    assert any(message in problem.message for problem in problems_of(HEAD + f"  e: {arm}\n"))


def test_the_same_rule_said_twice_is_no_contradiction(load) -> None:  # type: ignore[no-untyped-def]
    keys = "rejection_sample_method: block, draft_sample_method: probabilistic"
    assert verified(load, keys, ", verification: {kind: block}").scenario.arms["e"].rule.kind == "block"


def test_synthetic_without_rates_leaves_the_stated_acceptance(load) -> None:  # type: ignore[no-untyped-def]
    loaded = verified(load, "rejection_sample_method: synthetic")
    assert "the arm's acceptance stands" in loaded.notes[0]
    assert loaded.scenario.arms["e"].verification is None


def test_plain_arms_verify_nothing(problems_of) -> None:  # type: ignore[no-untyped-def]
    (problem,) = problems_of(HEAD + "  p: {verification: {kind: block}}\n")
    assert problem.key == "arms.p.verification"
    assert "does not speculate" in problem.message


def test_files_of_acceptance_are_read_when_a_scenario_is_checked(problems_of) -> None:  # type: ignore[no-untyped-def]
    for acceptance in (
        "{kind: distributions, language_models: {text: none.txt}}",
        "{kind: sequence_replay, path: none}",
    ):
        arm = f"{{speculative_config: {{method: eagle3, num_speculative_tokens: 3}}, acceptance: {acceptance}}}"
        (problem,) = problems_of(HEAD + f"  e: {arm}\n")
        assert problem.key == "arms.e.acceptance"
        assert "cannot" in problem.message


def test_waves_are_said_to_do_nothing_where_none_are_known(load) -> None:  # type: ignore[no-untyped-def]
    waves = "arms: {plain: {}}\nmodel: MODEL\ncost_model: {kind: roofline, attention_waves: count}\nhardware: GPU\n"

    def notes(model: str, gpu: str) -> list[str]:
        return [one for one in load(waves.replace("MODEL", model).replace("GPU", gpu)).notes if "waves" in one]

    (hopper,) = notes("llama-3.1-8b", "h100-sxm")
    assert "cost_model.attention_waves: no effect: the profile of H100-SXM (h100-sxm) knows no waves" in hopper
    assert notes("llama-3.1-8b", "a100-sxm-80gb") == []
