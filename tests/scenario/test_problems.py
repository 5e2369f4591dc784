"""Every class of mistake, with its place, what is allowed, and the nearest spelling."""
# ruff: noqa: E501  # one case a line

import re

import pytest

from sim.errors import Problem

HEAD = "model: llama-3.1-8b\nhardware: h100-sxm\n"
PLAIN = "arms: {plain: {}}\n"
EAGLE = "arms: {plain: {}, e: {speculative_config: {method: eagle3, num_speculative_tokens: 3}, acceptance: %s}}\n"


def short(problem: Problem) -> str:
    return f"{problem.where.removeprefix('s.yaml:')} {problem.key}: {problem.message}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # single values
        (HEAD + PLAIN + "engine: {max_num_seq: 4}", "4:10 engine.max_num_seq: unknown key; did you mean max_num_seqs?"),
        (HEAD + PLAIN + "max_num_seqs: 4", "4:1 max_num_seqs: unknown key; did you mean engine.max_num_seqs?"),
        (HEAD + PLAIN + "zzz: 4", "4:1 zzz: unknown key; allowed: schema_version, name, seed, hardware, model,"),
        (HEAD + PLAIN + "engine:\n  max_num_seqs: x", "5:17 engine.max_num_seqs: expected a count such as `8192`"),
        (HEAD + PLAIN + "engine: {block_size: 0}", "4:22 engine.block_size: found 0; allowed: above 0"),
        (HEAD + PLAIN + "engine: {block_size: 1.5}", "4:22 engine.block_size: expected a whole number, found 1.5"),
        (HEAD + PLAIN + "engine: {block_size: 012}", "4:22 engine.block_size: '012' is no number"),
        (HEAD + PLAIN + "engine: {gpu_memory_utilization: 90}", "4:34 engine.gpu_memory_utilization: found 90; allowed: at"),
        (HEAD + PLAIN + "engine: {gpu_memory_utilization: nan}", "4:34 engine.gpu_memory_utilization: found 'nan'; allowed: a"),
        (HEAD + PLAIN + "engine: {async_scheduling: yes}", "4:28 engine.async_scheduling: found 'yes'; allowed: true or"),
        (HEAD + PLAIN + "engine: {scheduling_policy: fcf}", "4:29 engine.scheduling_policy: found 'fcf'; allowed: fcfs; did"),
        (HEAD + PLAIN + "engine: [1]", "4:9 engine: found a list; allowed: a mapping"),
        (HEAD + PLAIN + "engine: {tensor_parallel_size: null}", "4:32 engine.tensor_parallel_size: expected a count"),
        (HEAD + PLAIN + "seed: -1", "4:7 seed: found -1; allowed: at least 0"),
        (HEAD + PLAIN + "name: ../x", "4:7 name: found '../x'; allowed: letters, digits and . _ -"),
        (HEAD + PLAIN + "schema_version: 2", "4:17 schema_version: found 2; allowed: 1"),
        (HEAD + PLAIN + "slo: {ttft: 2 GB}", "4:13 slo.ttft: unknown unit 'GB' in '2 GB'; allowed: ns, us"),
        (HEAD + PLAIN + "slo: {ttft: 0}", "4:13 slo.ttft: found 0; allowed: above 0"),
        (HEAD + PLAIN + "sweep: {replicates: 0}", "4:21 sweep.replicates: found 0; allowed: above 0"),
        (HEAD + PLAIN + "sweep: {breakeven: {objectives: []}}", "4:33 sweep.breakeven.objectives: found a list; allowed: at"),
        (HEAD + PLAIN + "sweep: {breakeven: {objectives: [mean_tpot]}}", "4:34 sweep.breakeven.objectives[0]: found"),
        (HEAD + PLAIN + "workload: {arrivals: {kind: closd}}", "4:29 workload.arrivals.kind: found 'closd'; allowed: "),
        (HEAD + PLAIN + "workload: {arrivals: {max_concurrency: 3}}", "4:12 workload.arrivals.kind: missing; allowed: "),
        (HEAD + PLAIN + "cost_model: rooflin", "4:13 cost_model.kind: found 'rooflin'; allowed: constant, linear, naive"),
        (PLAIN + "model: llama-3.1-8b", "1:1 hardware: missing"),
        (HEAD + "arms: {plain: {speculate: 1}}", "3:16 arms.plain.speculate: unknown key; did you mean "),
        (HEAD + "arms: {a b: {}}", "3:8 arms.a b: found 'a b'; allowed: letters"),
        (HEAD + "arms: {}", "3:7 arms: found a mapping; allowed: at least 1"),
        (HEAD + EAGLE % "{kind: idd, rate: 0.5}", "3:107 arms.e.acceptance.kind: found 'idd'; allowed: "),
        (HEAD + EAGLE % "{rate: 0.5}", "3:88 arms.e.acceptance.kind: missing; allowed: "),
        (HEAD + EAGLE % "{kind: iid, rate: 1.5}", "3:118 arms.e.acceptance.rate: found 1.5; allowed: at most 1"),
        (HEAD + EAGLE % "{kind: iid, rte: 1}", "3:112 arms.e.acceptance.rte: unknown key; did you mean rate?"),
        (HEAD + "arms: {e: {speculative_config: {method: eagel, num_speculative_tokens: 3}}}", "3:41 arms.e.speculative"),
        # between values
        ("model: llama-3.1-8bb\nhardware: h100-sxm\n" + PLAIN, "1:8 model.target: unknown model 'llama-3.1-8bb'; did you"),
        ("model: llama-3.1-8b\nhardware: h100-smx\n" + PLAIN, "2:11 hardware.gpu: unknown GPU 'h100-smx'; did you mean"),
        ("model: {target: none/config.json}\nhardware: h100-sxm\n" + PLAIN, "1:17 model.target: "),
        (HEAD + "arms: {e: {speculative_config: {method: ngram, num_speculative_tokens: 3}, acceptance: {kind: iid, rate: 1}}}",
         "3:1 arms: no arm without speculation to compare with; add `plain: {}`"),
        (HEAD + PLAIN + "baseline: plan", "4:11 baseline: found 'plan'; allowed: plain; did you mean plain?"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: ngram, num_speculative_tokens: 3}}}",
         "3:19 arms.e.acceptance: missing; a speculative arm must state its acceptance"),
        (HEAD + EAGLE % "{kind: stream_replay, path: s.jsonl}",
         "3:107 arms.e.acceptance.kind: found 'stream_replay': eagle3 does not draft from tokens; allowed: with method ngram"),
        (HEAD + EAGLE.replace("eagle3", "ngram") % "{kind: stream_replay, path: none.jsonl}",
         "3:127 arms.e.acceptance.path: "),
        (HEAD + EAGLE.replace("eagle3", "suffix") % "{kind: iid, rate: 0.5}" + "engine: {async_scheduling: true}",
         "3:52 arms.e.speculative_config.method: the drafts of suffix are made on the CPU"),
        (HEAD + EAGLE.replace("eagle3", "ngram, prompt_lookup_min: 4, prompt_lookup_max: 2") % "{kind: iid, rate: 0.5}",
         "3:43 arms.e.speculative_config: prompt_lookup_min (4) is above prompt_lookup_max (2)"),
        (HEAD + "arms: {plain: {acceptance: {kind: iid, rate: 0.5}}}", "3:16 arms.plain.acceptance: has no effect"),
        (HEAD + EAGLE % "{kind: per_position, rates: [0.7, 0.5]}", "3:100 arms.e.acceptance: covers 2 draft tokens; allowed"),
        (HEAD + EAGLE % "{kind: iid, rate: 0.7}, class_acceptance: {code: {kind: iid, rate: 0.5}}",
         "3:143 arms.e.class_acceptance.code: no such traffic class; workload.classes is empty"),
        (HEAD + EAGLE % "{kind: iid, rate: 0.7}" + "engine: {max_model_len: 3}\nworkload: {prompt_tokens: {kind: fixed, value: 1}}",
         "3:84 arms.e.speculative_config.num_speculative_tokens: found 3; allowed: below engine.max_model_len = 3"),
        (HEAD + PLAIN + "engine: {enable_expert_parallel: true, tensor_parallel_size: 2}",
         "4:34 engine.enable_expert_parallel: Llama-3.1-8B is dense: it has no experts to spread; allowed here: false"),
        (HEAD + PLAIN + "engine: {enable_eplb: true}", "4:23 engine.enable_eplb: found true; only false is simulated"),
        (HEAD + PLAIN + "engine: {max_num_seqs: 64, max_num_batched_tokens: 32}", "4:52 engine.max_num_batched_tokens: "),
        (HEAD + PLAIN + "engine: {enable_chunked_prefill: false, max_num_batched_tokens: 32}", "4:65 engine.max_num_batch"),
        (HEAD + PLAIN + "engine: {kv_cache_dtype: fp8}\nmodel: {target: llama-3.1-8b, kv_cache_dtype: bf16}", "5:1 model: duplicate"),
        ("hardware: h100-sxm\n" + PLAIN + "engine: {kv_cache_dtype: fp8}\nmodel: {target: llama-3.1-8b, kv_cache_dtype: bf16}",
         "3:26 engine.kv_cache_dtype: found 'fp8'; contradicts model.kv_cache_dtype = bf16"),
        ("hardware: h100-sxm\n" + PLAIN + "engine: {dtype: half}\nmodel: {target: llama-3.1-8b, weight_dtype: bf16}",
         "3:17 engine.dtype: found 'half'; contradicts model.weight_dtype = bf16"),
        (HEAD + PLAIN + "slo: {percentile: 90}", "4:1 slo: states no bound; allowed: at least one of ttft, tpot, e2el"),
        (HEAD + PLAIN + "sweep: {breakeven: {objectives: [request_goodput]}}", "4:34 sweep.breakeven.objectives[0]: request_"),
        # vLLM configs
        (HEAD + PLAIN + "engine: {pipeline_parallel_size: 2}", "4:34 engine.pipeline_parallel_size: found 2; only 1 is"),
        (HEAD + PLAIN + "engine: {max-num-seqs: 2, max_num_seqs: 2}", "4:27 engine.max_num_seqs: the same key as"),
        (HEAD + PLAIN + "engine: {speculative_config: {}}", "4:10 engine.speculative_config: belongs to an arm"),
        (HEAD + "arms: {plain: {speculative_config: 'x'}}", "3:36 arms.plain.speculative_config: expected a mapping"),
        # methods
        (HEAD + "arms: {plain: {}, d: {speculative_config: {method: draft_model, model: qwen3-0.6b, num_speculative_tokens: 2},"
         " acceptance: {kind: iid, rate: 0.6}}}",
         "3:72 arms.d.speculative_config.model: Qwen3-0.6B has a vocabulary of 151,936 tokens and Llama-3.1-8B of 128,256: "),
        (HEAD + "arms: {plain: {}, n: {speculative_config: {method: ngram, num_speculative_tokens: 3}, acceptance: "
         "{kind: ngram_markov, profile: sharegpt}}}\nengine: {async_scheduling: true}",
         "3:52 arms.n.speculative_config.method: the drafts of ngram are made on the CPU, which engine.async_scheduling"),
        (HEAD + "arms: {plain: {}, l: {speculative_config: {method: lookahead, max_window_size: 4, max_ngram_size: 4, "
         "max_verification_set_size: 4}, acceptance: {kind: guesses, rate: 0.1, guesses: 4}}}\nengine: {async_scheduling: true}",
         "3:52 arms.l.speculative_config.method: the drafts of lookahead are made on the CPU"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: dflash, num_speculative_tokens: 8, "
         "num_speculative_tokens_per_batch_size: [[1, 16, 8], [17, 64, 4], [65, 1024, 0]]}, "
         "acceptance: {kind: table_by_k, tokens_per_step: {8: 3.5, 2: 2.0}}}}",
         "3:181 arms.e.acceptance: says nothing of K = 4, which speculative_config asks for; add it"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: dflash, num_speculative_tokens: 7}, "
         "acceptance: {kind: table_by_k, tokens_per_step: {8: 3.5}}}}",
         "3:100 arms.e.acceptance: says nothing of K = 7, which speculative_config asks for; add it"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: mtp, num_speculative_tokens: 1}, "
         "acceptance: {kind: iid, rate: 0.5}}}",
         "3:43 arms.e.speculative_config: Llama-3.1-8B has no multi-token-prediction layers"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: layerskip, exit_layer: 99, num_speculative_tokens: 1}, "
         "acceptance: {kind: iid, rate: 0.5}}}", "3:43 arms.e.speculative_config: exit_layer 99: allowed: below the 32"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: draft_model, model: none-such, num_speculative_tokens: 1}, "
         "acceptance: {kind: iid, rate: 0.5}}}", "3:43 arms.e.speculative_config: unknown model 'none-such'"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: rest, num_speculative_tokens: 1, tree: {kind: widths, "
         "widths: [2]}}, acceptance: {kind: iid, rate: 0.5}}}",
         "3:85 arms.e.speculative_config.tree: unknown key; allowed: method"),
        (HEAD + "arms: {plain: {}, e: {speculative_config: {method: eagle3, num_speculative_tokens: 2, tree: {kind: widths, "
         "widths: [2]}}, acceptance: {kind: per_rank, rates: [0.5, 0.1]}, verification: {kind: block}}}",
         "3:186 arms.e.verification: block judges the drafts of a chain together; eagle3 drafts a tree"),
        # sweeps
        (HEAD + PLAIN + "sweep: {vary: {engine.max_num_seq: [1]}}", "4:16 sweep.vary.engine.max_num_seq: names no field:"),
        (HEAD + PLAIN + "sweep: {vary: {seed: [1]}}", "4:16 sweep.vary.seed: seed cannot be varied"),
        (HEAD + PLAIN + "sweep: {vary: {engine.block_size: [16, x]}}", "4:40 sweep.vary.engine.block_size[1]: expected a count"),
        (HEAD + PLAIN + "sweep: {vary: {engine.block_size: []}}", "4:35 sweep.vary.engine.block_size: found a list; allowed"),
        (HEAD + PLAIN + "sweep: {vary: {engine.block_size: 16}}", "4:35 sweep.vary.engine.block_size: found 16; allowed: a"),
        (HEAD + PLAIN + "sweep: {vary: {model: [qwen2.5-7b, nothing-such]}}", "4:36 sweep.vary.model[1]: with 'nothing-such': "),
        (HEAD + EAGLE % "{kind: per_position, rates: [0.7, 0.5, 0.2]}"
         + "sweep: {vary: {arms.e.speculative_config.num_speculative_tokens: [1, 2, 9]}}",
         "4:73 sweep.vary.arms.e.speculative_config.num_speculative_tokens[2]: with 9: arms.e.acceptance: covers 3"),
        (HEAD + PLAIN + "sweep: {vary: {workload.arrivals.request_rate: [1]}}", "4:16 sweep.vary.workload.arrivals.request"),
        # whole files
        ("", "1:1 : expected a mapping with at least model, hardware and arms"),
        ("- 1", "1:1 : expected a mapping with at least model, hardware and arms"),
        ("5", "1:1 : expected a mapping with at least model, hardware and arms"),
    ],
)  # fmt: skip
def test_problem(problems_of, text: str, expected: str) -> None:  # type: ignore[no-untyped-def]
    found = [short(problem) for problem in problems_of(text)]
    assert any(line.startswith(expected) for line in found), found


def test_every_problem_is_told_at_once_in_order_of_place(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = """\
model: llama-3.1-8bb
hardware: {gpu: h100-sxm, overrides: {mem: 80}}
engine:
  max_num_seq: 4
  block_size: 012
  block_size: 16
arms:
  plain:
    acceptance: {kind: iid, rate: 0.5}
  eagle:
    speculative_config: {method: eagle3, num_speculative_tokens: 3}
slo: {}
sweep: {replicates: many}
"""
    problems = problems_of(text)
    places = [tuple(map(int, problem.where.split(":")[1:])) for problem in problems]
    assert places == sorted(places)
    assert [problem.key for problem in problems] == [
        "model.target", "hardware.overrides.mem", "engine.max_num_seq", "engine.block_size", "engine.block_size",
        "arms.plain.acceptance", "arms.eagle.acceptance", "slo", "sweep.replicates",
    ]  # fmt: skip


def test_the_message_shows_the_line_with_a_caret(problems_of) -> None:  # type: ignore[no-untyped-def]
    (problem,) = problems_of(HEAD + PLAIN + "engine:\n  max_num_seq: 4\n")
    assert str(problem) == (
        "s.yaml:5:3: engine.max_num_seq: unknown key; did you mean max_num_seqs?\n    max_num_seq: 4\n    ^"
    )


def test_a_broken_section_makes_no_made_up_follow_ups(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = (
        HEAD + "arms:\n  plain: {}\n  e: {speculative_config: {method: eagle3, num_speculative_tokens: x}}\nslo: {}\n"
    )
    assert [problem.key for problem in problems_of(text)] == ["arms.e.speculative_config.num_speculative_tokens", "slo"]


def test_very_many_problems_are_counted_not_listed(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = HEAD + PLAIN + "engine:\n" + "".join(f"  key_{i}: 1\n" for i in range(90))
    problems = problems_of(text)
    assert len(problems) == 51
    assert problems[-1].message == "... and 40 more problems"


def test_no_message_shows_pydantic_or_python(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = (
        HEAD + "arms: {plain: 3}\nengine: {dtype: 3, watermark: {}}\nworkload: 3\nsweep: {vary: 5}\nslo: {ttft: []}\n"
    )
    problems = problems_of(text)
    assert len(problems) >= 5
    for problem in problems:
        assert not re.search(r"pydantic|Input should|dict|NoneType|instance of", problem.message), problem


def test_one_broken_place_hides_nothing_beside_it(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = """
model: {target: llama-3.1-8c, weight_dtype: bf17}
hardware: {gpu: h100sxn, cost_per_gpu_hour_usd: -3}
arms:
  plain: {}
  broken: {speculative_config: {method: eagle4}}
  silent: {speculative_config: {method: eagle3, num_speculative_tokens: 3}}
"""
    assert [problem.key for problem in problems_of(text)] == [
        "model.target",
        "model.weight_dtype",
        "hardware.gpu",
        "hardware.cost_per_gpu_hour_usd",
        "arms.broken.speculative_config.method",
        "arms.silent.acceptance",
    ]


def test_values_of_a_sweep_are_checked_beside_what_else_is_wrong(problems_of) -> None:  # type: ignore[no-untyped-def]
    text = (
        "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {max_num_seq: 4}\narms: {plain: {}}\n"
        "workload: {prompt_tokens: {kind: trace}}\nslo: {}\n"
        "sweep: {vary: {engine.max_num_seqs: [0, 5, 5], engine.blok_size: [1], workload.zzz: [1]}}\n"
    )
    told = {problem.key: problem.message for problem in problems_of(text)}
    assert told["engine.max_num_seq"] == "unknown key; did you mean max_num_seqs?"
    assert "kind trace needs workload.trace" in told["workload.prompt_tokens"]
    assert "states no bound" in told["slo"]
    assert told["sweep.vary.engine.max_num_seqs[0]"] == "found 0; allowed: above 0"
    assert "stands here twice: 5" in told["sweep.vary.engine.max_num_seqs[2]"]
    assert "did you mean block_size?" in told["sweep.vary.engine.blok_size"]
    assert len(told) == 6  # nothing about workload.zzz: its section could not be read
