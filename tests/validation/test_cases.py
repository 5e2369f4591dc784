"""Published rows -> cases: strict reading, names as sources write them, what cannot be run and why."""

import gzip

import pytest

from sim.acceptance.ngram_markov import NgramMarkov
from sim.errors import ScenarioError
from sim.validation import as_published
from sim.validation.as_published import UnrunnableError
from sim.validation.cases import build_cases
from sim.validation.lengths import LONG_TOKENS
from sim.validation.ngram_mean import ngram_at
from sim.validation.published import read_published


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
    with pytest.raises(ScenarioError, match="given twice: a"):
        read_published(tmp_path)
    (tmp_path / "published" / "some.csv").write_text("case_id,source\na,b\n")
    with pytest.raises(ScenarioError, match="missing columns table_or_section"):
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
        ({"engine": ""}, "engine not stated"),
        ({"engine": "in-house"}, "unknown engine"),
        ({"method": "crystal ball"}, "method 'crystal ball' is not simulated"),
        ({"k_or_tree": "tree (default)"}, "shape of the tree not stated"),
        ({"batch_or_concurrency": "some"}, "batch or concurrency not stated"),
        ({"metric": "acceptance only"}, "acceptance only"),
        ({"speedup": ""}, "no speed-up"),
        ({"trust": "3"}, "trust 3"),
        ({"mean_accepted_len": ""}, "acceptance not stated"),
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
        ("tree 7 steps top-k 10, 60 draft tokens", "",
         {"num_speculative_tokens": 59, "tree": {"kind": "dynamic", "depth": 7, "top_k": 10}}),
        ("tree k=21", "depth 3; k=21 branching 4",
         {"num_speculative_tokens": 21, "tree": {"kind": "dynamic", "depth": 3, "top_k": 4}}),
    ],
)  # fmt: skip
def test_shapes_as_sources_write_them(text, notes, drafts):
    assert as_published.drafts(text, notes) == drafts


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("Llama-3.1-8B-Instruct", ("llama-3.1-8b", "auto")),
        ("meta-llama/Llama-3.3-70B-Instruct", ("llama-3.3-70b", "auto")),
        ("Qwen3-8B-Thinking", ("qwen3-8b", "auto")),
        ("Llama-2-7B-32K", ("llama-2-7b", "auto")),
        ("Vicuna-7B", ("llama-2-7b", "auto")),
        ("Llama-3-70B FP8", ("llama-3.1-70b", "fp8")),
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
    ],
)
def test_engines_as_sources_write_them(name, profile, stretched):
    assert as_published.engine(name) == profile
    assert as_published.engine_is_stretched(name) == stretched


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
    assert mixed == {"a": True, "b": False, "c": True, "d": True}
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
