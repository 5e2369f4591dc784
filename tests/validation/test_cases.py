"""Published rows -> cases: strict reading, names as sources write them, what cannot be run and why."""

import gzip

import pytest

from sim.acceptance.ngram_markov import NgramMarkov
from sim.errors import ScenarioError
from sim.validation import as_published, stated_method
from sim.validation.as_published import UnrunnableError
from sim.validation.cases import build_cases
from sim.validation.harness.base import ArmTimes
from sim.validation.lengths import LONG_TOKENS
from sim.validation.ngram_mean import ngram_at
from sim.validation.published import read_published
from sim.validation.stated_metric import metric


def reason(publish, change: dict[str, str]) -> str:
    folder = publish(change)
    cases, (not_run,) = build_cases(read_published(folder), folder)
    assert cases == []
    return not_run.reason


def test_every_fault_of_a_table_is_named_with_its_line(publish, tmp_path):
    publish({"speedup": "fast"}, {"trust": "high"}, {"plain_value": "-3"})
    with pytest.raises(ScenarioError) as error:
        read_published(tmp_path)
    text = str(error.value)
    assert "some.csv:2: speedup: expected a positive number or nothing, found 'fast'" in text
    assert "some.csv:3: trust" in text
    assert "some.csv:4: plain_value" in text


def test_cases_given_twice_and_missing_columns_are_errors(publish, tmp_path):
    publish({"case_id": "a"}, {"case_id": "a"})
    with pytest.raises(ScenarioError, match=r"some\.csv:3: case_id: 'a' is already at some\.csv:2"):
        read_published(tmp_path)
    publish({"case_id": ""})
    with pytest.raises(ScenarioError, match=r"some\.csv:2: case_id: expected a name"):
        read_published(tmp_path)
    (tmp_path / "published" / "some.csv").write_text("case_id,source\na,b\n")
    with pytest.raises(ScenarioError, match="missing columns target_model, gpu"):
        read_published(tmp_path)


def test_tables_of_another_kind_are_no_rows(tmp_path):
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    assert read_published(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_model": "Nobody-1B"}, "unknown model 'Nobody-1B'"),
        ({"gpu": "Abacus"}, "unknown GPU 'Abacus'"),
        ({"gpu": ""}, "GPU not stated"),
        ({"gpu": "not in the text"}, "GPU not stated"),
        ({"n_gpus": "a few"}, "number of GPUs 'a few'"),
        ({"engine": ""}, "engine not stated"),
        ({"engine": "in-house"}, "unknown engine"),
        ({"method": "crystal ball"}, "method 'crystal ball' is not simulated"),
        ({"k_or_tree": "tree (default)"}, "shape of the tree not stated"),
        ({"k_or_tree": "3-5"}, "number of drafts"),
        ({"batch_or_concurrency": "some"}, "no single batch, concurrency or request rate: 'some'"),
        ({"batch_or_concurrency": "1 to 64"}, "no single batch"),
        ({"batch_or_concurrency": "0 QPS"}, "no single batch"),
        ({"metric": "p99 latency s"}, "metric 'p99 latency s' is not simulated"),
        ({"metric": "goodput"}, "metric 'goodput' is not simulated"),
        ({"target_model": "T5-XXL 11B"}, "unknown model 'T5-XXL 11B': an encoder-decoder"),
        ({"metric": "acceptance only"}, "acceptance only"),
        ({"speedup": ""}, "no speed-up"),
        ({"trust": "2"}, "trust 2: never run"),
        ({"target_model": "Nobody-1B", "gpu": "Abacus"}, "unknown model 'Nobody-1B'; unknown GPU 'Abacus'"),
        ({"mean_accepted_len": "4.5"}, "4.5"),  # more than K + 1
    ],
)
def test_rows_that_cannot_be_run_say_why(publish, change, words):
    assert words in reason(publish, change)


@pytest.mark.parametrize(
    ("text", "notes", "drafts"),
    [
        ("3", "", {"num_speculative_tokens": 3}),
        ("chain k=5", "", {"num_speculative_tokens": 5}),
        ("block 16", "", {"num_speculative_tokens": 15}),
        ("match 3, draft 7", "", {"num_speculative_tokens": 7}),
        ("steps 5 topk 1 draft_tokens 6", "", {"num_speculative_tokens": 5}),
        ("K=3", "", {"num_speculative_tokens": 3}),
        ("3 tokens", "", {"num_speculative_tokens": 3}),
        ("gamma=4", "", {"num_speculative_tokens": 4}),
        ("3/1/4", "", {"num_speculative_tokens": 3}),
        ("W=15 N=5 G=15", "", {"max_window_size": 15, "max_ngram_size": 5, "max_verification_set_size": 15}),
        ("eagle_25", "", {"num_speculative_tokens": 25, "tree": {"kind": "named", "name": "eagle_25"}}),
        ("(5, 4, 8)", "", {"num_speculative_tokens": 7, "tree": {"kind": "dynamic", "depth": 5, "top_k": 4}}),
        ("num_steps=3, eagle_topk=4, num_draft_tokens=16", "",
         {"num_speculative_tokens": 15, "tree": {"kind": "dynamic", "depth": 3, "top_k": 4}}),
        ("tree depth 6, top-k 10, 60 tokens", "",
         {"num_speculative_tokens": 59, "tree": {"kind": "dynamic", "depth": 6, "top_k": 10}}),
        ("tree 7 steps top-k 10, 60 draft tokens", "",
         {"num_speculative_tokens": 59, "tree": {"kind": "dynamic", "depth": 7, "top_k": 10}}),
        ("tree k=21", "depth 3; k=21 branching 4",
         {"num_speculative_tokens": 21, "tree": {"kind": "dynamic", "depth": 3, "top_k": 4}}),
    ],
)  # fmt: skip
def test_shapes_as_sources_write_them(text, notes, drafts):
    assert stated_method.drafts(text, notes) == drafts


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("Llama-3.1-8B-Instruct", ("llama-3.1-8b", "auto")),
        ("meta-llama/Llama-3.3-70B-Instruct", ("llama-3.3-70b", "auto")),
        ("Qwen3-8B-Thinking", ("qwen3-8b", "auto")),
        ("Llama-2-7B-32K", ("llama-2-7b", "auto")),
        ("Vicuna-7B", ("llama-2-7b", "auto")),
        ("Llama-3-70B FP8", ("llama-3.1-70b", "fp8")),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", ("llama-3.1-70b", "fp8")),
        ("Qwen3-235B-A22B-Instruct-2507-FP8", ("qwen3-235b-a22b", "fp8")),
        ("RedHatAI/Llama-3.1-8B-Instruct-quantized.w4a16", ("llama-3.1-8b", "int4")),
        ("Qwen2.5-72B-Instruct-AWQ", ("qwen2.5-72b", "int4")),
        ("nvidia/DeepSeek-R1-FP4", ("deepseek-r1", "nvfp4")),
        ("gpt-oss-120b FP4", ("gpt-oss-120b", "auto")),
        ("DeepSeek-R1-Distill-Llama-8B", ("llama-3.1-8b", "auto")),
        ("Mixtral-8x7B-Instruct-v0.1", ("mixtral-8x7b", "auto")),
        ("Vicuna-13B-v1.3", ("llama-2-13b", "auto")),
        ("LLaMA2-Chat 13B", ("llama-2-13b", "auto")),
        ("Qwen3-Coder-30B-A3B-Instruct", ("qwen3-30b-a3b", "auto")),
    ],
)
def test_models_as_sources_write_them(name, ours):
    assert as_published.target(name) == ours


@pytest.mark.parametrize(
    ("name", "profile", "stretched"),
    [
        ("vLLM 0.10.1.1", "vllm-0.10", False),
        ("vLLM V1 (2025-07)", "vllm-0.10", False),
        ("vLLM V0 (0.6.x)", "vllm-0.6", False),
        ("vllm 0.19.0", "vllm", False),
        ("SGLang 0.5.9", "sglang", False),
        ("SGLang 0.4.4", "sglang", True),
        ("TensorRT-LLM", "trtllm", False),
        ("TRT-LLM 0.17", "trtllm", False),
        ("vLLM 0.11", "vllm-0.10", False),
        ("authors code", "hf", False),
        ("gpt-fast", "none", False),
    ],
)
def test_engines_as_sources_write_them(name, profile, stretched):
    assert as_published.engine(name) == profile
    assert as_published.engine_is_stretched(name) == stretched


@pytest.mark.parametrize(
    ("name", "ours", "count"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM", 1),
        ("8 x H100", "H100-SXM", 8),
        ("2xA100-80GB", "A100-SXM-80GB", 2),
        ("A100-SXM4-40GB", "A100-SXM-40GB", 1),
        ("A100 80GB PCIe", "A100-PCIe-80GB", 1),
        ("H200 141GB", "H200-SXM", 1),
        ("RTX3090 24GB", "RTX-3090", 1),
        ("GeForce RTX 4090", "RTX-4090", 1),
        ("GB200", "GB200", 1),
    ],
)
def test_gpus_and_how_many_as_sources_write_them(name, ours, count):
    assert (as_published.gpu(name), as_published.num_gpus("", name)) == (ours, count)


@pytest.mark.parametrize(
    ("name", "k", "config"),
    [
        ("draft model Llama-3.2-1B-Instruct", "4", {"method": "draft_model", "model": "llama-3.2-1b"}),
        ("Llama-3.2-1B draft", "4", {"method": "draft_model", "model": "llama-3.2-1b"}),
        ("SpS (68M draft)", "5", {"method": "draft_model", "model": "llama-68m"}),
        ("MTP-1", "", {"method": "mtp", "num_speculative_tokens": 1}),
        ("EAGLE (MTP head)", "2", {"method": "mtp", "num_speculative_tokens": 2}),
        ("Medusa", "medusa_7b_63", {"method": "medusa", "num_heads": 5}),
        ("[ngram]", "20", {"method": "ngram", "num_speculative_tokens": 20}),
        ("SuffixDecoding", "16", {"method": "suffix", "num_speculative_tokens": 16}),
    ],
)
def test_drafters_as_sources_write_them(name, k, config):
    assert config.items() <= stated_method.speculative_config(name, k, "", "llama-3.1-8b", 1).items()


@pytest.mark.parametrize(
    ("text", "figure", "ours"),
    [
        ("output tok/s (whole engine)", "throughput", 600.0),
        ("output tok/s per GPU", "throughput", 300.0),
        ("tok/s/user", "rate of a user", 125.0),
        ("decode tok/s", "decode rate", 500.0),
        ("TPOT ms", "TPOT", 8.0),
        ("ITL (s)", "TPOT", 0.008),
        ("mean end-to-end latency s", "latency", 2.5),
        ("mean latency (ms)", "latency", 2500.0),
        ("TTFT ms", "TTFT", 40.0),
        ("", "throughput", 600.0),
    ],
)
def test_metrics_as_sources_write_them(text, figure, ours):
    found = metric(text)
    assert (found.figure, found.of(ArmTimes(600.0, 8.0, 40.0, 2.5, 3.9), 4, 2)) == (figure, pytest.approx(ours))
    assert found.is_time == (figure in ("TPOT", "latency", "TTFT"))
    assert found.absolute == (text != "")


def test_advisory_rows_are_cases_and_say_what_is_assumed(publish):
    prototype = {"trust": "3", "engine": "authors HF-transformers code", "gpu": "not in the text", "n_gpus": ""}
    folder = publish(
        prototype,
        prototype | {"target_model": "Llama-3.3-70B-Instruct", "k_or_tree": "tree (dynamic)", "mean_accepted_len": "4"},
        {"engine": "SGLang 0.4.4", "k_or_tree": "8 steps tree", "mean_accepted_len": "5"},
        {"trust": "3", "gpu": ""},
        {"target_model": "Llama-3.1-70B", "n_gpus": "", "k_or_tree": "5", "gpu": "H100"},
        {},
    )
    cases, (no_gpu,) = build_cases(read_published(folder), folder)
    assert no_gpu.reason == "GPU not stated"  # a serving engine's may be any
    assert [case.advisory for case in cases] == [True, True, True, True, False]
    assert [case.num_gpus for case in cases] == [1, 2, 1, 2, 1]  # as many as hold 70B
    assert cases[0].remarks == ("GPU not stated: a100-sxm-80gb",)
    assert cases[1].config["tree"] == {"kind": "dynamic", "depth": 8, "top_k": 10}
    assert cases[2].config["tree"] == {"kind": "dynamic", "depth": 8, "top_k": 8}
    assert cases[2].remarks[-1] == "8 steps, topk 8, 64 draft tokens, as documented"


def test_columns_beyond_the_needed_ones_may_be_missing(tmp_path):
    there = tmp_path / "published"
    there.mkdir()
    (there / "mine.csv").write_text(
        "case_id,source,target_model,gpu,engine,method,k_or_tree,batch_or_concurrency,speedup,mean_accepted_len,trust\n"
        "a,mine,Qwen3-8B,H200,vLLM 0.11,EAGLE-3,3,8,1.4,2.2,5\n\n"
    )
    (row,) = read_published(tmp_path)
    ((case,), _) = build_cases([row], tmp_path)
    assert (case.load, case.metric.figure, case.lengths[:2]) == (8, "throughput", (256, 256))
    (there / "mine.csv").write_text("")
    assert read_published(tmp_path) == []


def test_coder_models_have_deeper_block_drafters(publish):
    row = {"method": "DFlash", "k_or_tree": "block 16", "engine": "SGLang 0.5.9", "gpu": "B200"}
    folder = publish(row | {"target_model": "Qwen3-Coder-30B-A3B-Instruct"}, row | {"target_model": "Qwen3-8B"})
    cases, _ = build_cases(read_published(folder), folder)
    assert [case.config.get("draft_layers") for case in cases] == [8, None]
    assert cases[0].common["model"]["target"] == "qwen3-30b-a3b"


def test_gpus_as_sources_write_them():
    assert as_published.gpu("H100 (inferred from a sibling)") == as_published.gpu("H100-80GB") == "H100-SXM"
    with pytest.raises(UnrunnableError):
        as_published.gpu("(inferred)")


def test_lengths_are_stated_or_of_the_same_data_set_or_assumed(publish):
    folder = publish(
        {},
        {"input_len": "", "output_len": "", "dataset": "Made-Up"},
        {"input_len": "~10", "output_len": "long CoT"},
        {"input_len": "10", "output_len": "<=600", "dataset": "other"},
    )
    cases, _ = build_cases(read_published(folder), folder)
    assert [case.lengths[:2] for case in cases] == [(64, 32), (64, 32), (10, LONG_TOKENS), (10, 300)]
    assert [bool(case.lengths.assumed) for case in cases] == [False, True, True, True]
    assert "as elsewhere" in cases[1].remarks[0]


def test_request_rates_of_vllm_are_sent_by_its_own_client(publish):
    """ShareGPT as `benchmark_serving.py` cuts it, unless the row says otherwise; nobody else's."""
    rate = {"batch_or_concurrency": "2 QPS", "dataset": "ShareGPT", "input_len": "", "output_len": ""}
    folder = publish(
        {"source": "a"},
        rate | {"source": "b", "engine": "vLLM V0 (0.6.x)"},
        rate | {"source": "c", "engine": "SGLang 0.5.9"},
        rate | {"source": "d", "engine": "vLLM 0.10", "input_len": "100", "output_len": "50"},
    )
    by_source = {case.row.source: case for case in build_cases(read_published(folder), folder)[0]}
    assert by_source["b"].lengths[:2] == (213, 202)
    assert "benchmark_serving" in by_source["b"].remarks[0]
    assert by_source["c"].lengths[:2] != (213, 202)
    assert by_source["d"].lengths[:2] == (100, 50)
    mixed = {source: case.common["engine"].get("enable_mixed_chunk", True) for source, case in by_source.items()}
    assert mixed == {"a": True, "b": False, "c": False, "d": True}
    assert by_source["b"].engine == "vllm-0.6"


def test_drives_follow_from_what_the_source_says(publish):
    folder = publish(
        {"notes": "batch = B clones of one prompt"},
        {"source": "another", "batch_or_concurrency": "8"},
        {"source": "a third", "batch_or_concurrency": "2.5 QPS"},
        {"source": "a fourth", "metric": "ms per token (decode only)", "input_len": "4000"},
    )
    cases, not_run = build_cases(read_published(folder), folder)
    assert not_run == []
    assert [(case.drive, case.load) for case in cases] == [("clones", 1), ("closed", 8), ("open", 2.5), ("steps", 1)]


def test_recordings_serve_their_own_source_and_model_only(publish, tmp_path):
    (tmp_path / "acceptance").mkdir()
    with gzip.open(tmp_path / "acceptance" / "madeup_accepted.csv.gz", "wt") as file:
        file.write("request,method,prompt_tokens,output_tokens,degenerate,accepted\n0,eagle,20,9,0,abcabaaa\n")
    theirs = {"source": "arXiv 2601.11580", "notes": "clones"}
    folder = publish(theirs, theirs | {"target_model": "Qwen3-8B"}, {"notes": "clones"})
    cases, _ = build_cases(read_published(folder), folder)
    assert [bool(case.recorded) for case in cases] == [True, False, False]


@pytest.mark.parametrize(("mean", "k"), [(1.05, 3), (1.4, 3), (2.6, 5)])
def test_prompt_lookup_meets_its_mean(mean, k):
    """The search stops at 2^-24 of its range; the quadrature over requests is exact."""
    found = NgramMarkov.model_validate(ngram_at(mean, k, "anything"))
    assert 1 + found.survival(k).sum() == pytest.approx(mean, rel=1e-4)
