"""K tables in the words of engines, judged by validators written from each engine's own rules."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.experiment.engine_export import ENGINES, KNOWN, Table, export, form_of
from sim.experiment.k_table import KRange

Json = dict[str, Any]


def vllm_lookup(config: Json, max_num_seqs: int) -> dict[int, int]:
    """K by batch size as vLLM reads the config; ValueError where it would refuse it.

    Written from vLLM's documentation ("Dynamic Speculative Decoding") and `v1/spec_decode/dynamic/utils.py`: a
    non-empty list of three whole numbers, positive, first <= last, K >= 0 and <= num_speculative_tokens; sorted, no
    overlap, the first range starts at 1; gaps and the tail inherit the K before them.
    """
    most = config["num_speculative_tokens"]
    schedule = config["num_speculative_tokens_per_batch_size"]
    if not isinstance(schedule, list) or not schedule or most <= 0:
        raise ValueError("a non-empty list, and a positive number of tokens")
    if any(len(entry) != 3 or not all(isinstance(n, int) for n in entry) for entry in schedule):
        raise ValueError("three whole numbers per entry")
    previous = 0
    for first, last, k in sorted(schedule):
        if first <= 0 or first > last or not 0 <= k <= most:
            raise ValueError(f"[{first}, {last}, {k}]")
        if first <= previous:
            raise ValueError("overlap")
        previous = last
    if min(schedule)[0] != 1:
        raise ValueError("the first range must start at 1")
    known = {batch: k for first, last, k in schedule for batch in range(first, last + 1)}
    lookup = {}
    for batch in range(1, max_num_seqs + 1):
        lookup[batch] = known.get(batch, lookup.get(batch - 1, 0))
    return lookup


def trtllm_lookup(config: Json, version: str, max_num_seqs: int) -> dict[int, int]:
    """K by batch size as TensorRT-LLM reads it (`llmapi/llm_args.py`, `DecodingBaseConfig`; pull request 10860)."""
    most = config["max_draft_len"]
    if "max_concurrency" in config:
        assert "draft_len_schedule" not in config, "mutually exclusive"
        return {b: most if b <= config["max_concurrency"] else 0 for b in range(1, max_num_seqs + 1)}
    schedule = config.get("draft_len_schedule")
    if schedule is None:
        return dict.fromkeys(range(1, max_num_seqs + 1), most)
    assert all(b >= 1 and 0 <= k <= most for b, k in schedule.items())
    assert schedule[min(schedule)] == most
    if version == "1.2":
        assert 1 in schedule
        return {b: schedule[max(key for key in schedule if key <= b)] for b in range(1, max_num_seqs + 1)}
    return {b: next((k for key, k in sorted(schedule.items()) if b <= key), 0) for b in range(1, max_num_seqs + 1)}


def sglang_lookup(slots: Json, max_num_seqs: int) -> dict[int, int]:
    """K by batch size: keys are lower bounds (`adaptive_step_router.py`), a single candidate leaves no choice."""
    assert all(key.isdigit() and len(entry["candidate_steps"]) == 1 for key, entry in slots.items())
    steps = {int(key): entry["candidate_steps"][0] for key, entry in slots.items()}
    assert all(isinstance(k, int) and k >= 0 for k in steps.values())
    return {b: steps[max((key for key in steps if key <= b), default=min(steps))] for b in range(1, max_num_seqs + 1)}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    ks = draw(st.lists(st.integers(0, 8), min_size=1, max_size=5).filter(any))
    ks = [k for i, k in enumerate(ks) if i == 0 or k != ks[i - 1]]
    widths = draw(st.lists(st.integers(1, 40), min_size=len(ks), max_size=len(ks)))
    lasts = [sum(widths[: i + 1]) for i in range(len(ks))]
    ranges = [KRange(last - width + 1, last, k) for last, width, k in zip(lasts, widths, ks, strict=True)]
    return Table({"method": "eagle3", "model": "head"}, tuple(ranges), max(ks))


def wanted(table: Table) -> dict[int, int]:
    return {batch: one.k for one in table.ranges for batch in range(one.first, one.last + 1)}


@given(tables())
def test_vllm_reads_the_same_k(table: Table) -> None:
    found = export(table, "vllm")
    pasted = json.loads(re.fullmatch(r"--speculative-config '(.*)'", found.text)[1])  # type: ignore[index]
    assert pasted == found.settings
    assert vllm_lookup(pasted, table.ranges[-1].last) == wanted(table)
    assert set(pasted) == {"method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"}


@given(tables())
def test_sglang_reads_the_same_k(table: Table) -> None:
    found = export(table, "sglang")
    assert sglang_lookup(found.settings["adaptive.json"], table.ranges[-1].last) == wanted(table)
    flags = found.settings["flags"]
    assert flags["speculative-eagle-topk"] == 1
    assert flags["speculative-num-draft-tokens"] == flags["speculative-num-steps"] + 1
    assert json.loads(found.text.splitlines()[-1]) == found.settings["adaptive.json"]


@given(tables(), st.sampled_from(KNOWN["trtllm"]))
def test_tensorrt_llm_reads_the_same_k_or_is_told_why_not(table: Table, version: str) -> None:
    found = export(table, "trtllm", version)
    if table.most > table.ranges[0].k:
        assert not found.text
        assert "largest K" in found.notes[0]
        return
    config = found.settings["speculative_config"]
    assert trtllm_lookup(config, version, table.ranges[-1].last) == wanted(table)


def test_tensorrt_llm_says_one_k_and_then_none_as_max_concurrency() -> None:
    table = Table({"method": "eagle3"}, (KRange(1, 32, 3), KRange(33, 256, 0)), 3)
    settings = export(table, "trtllm").settings["speculative_config"]
    assert settings == {"decoding_type": "Eagle3", "max_draft_len": 3, "max_concurrency": 32}
    assert export(table, "trtllm", "1.2").settings["speculative_config"]["draft_len_schedule"] == {1: 3, 33: 0}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_drafts_at_all_means_no_drafter(engine: str) -> None:
    found = export(Table({"method": "eagle3"}, (KRange(1, 256, 0),), 0), engine)
    assert (found.text, found.settings) == ("", {})
    assert "without a drafter" in found.notes[0]


def test_a_separate_draft_model_gets_one_k_in_sglang() -> None:
    table = Table({"method": "draft_model", "model": "small"}, (KRange(1, 8, 4), KRange(9, 64, 2)), 2)
    found = export(table, "sglang")
    assert "--speculative-algorithm STANDALONE" in found.text
    assert "--speculative-num-steps 2" in found.text
    assert "the best single one" in found.notes[0]


def test_versions_choose_the_form() -> None:
    assert [form_of("trtllm", version) for version in ("1.2.1", "1.3.0rc9", "2.0", None)] == [
        "1.2",
        "1.3",
        "1.3",
        "1.3",
    ]
    assert (form_of("sglang", "0.5.9"), form_of("sglang", "main"), form_of("vllm", "0.33")) == ("0.5", "main", "0.25")
    for engine, version, message in (("vllm", "0.24", "before 0.25"), ("vllm", "new", "allowed: a version")):
        with pytest.raises(ScenarioError, match=message):
            form_of(engine, version)
