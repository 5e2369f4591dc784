"""The text of `specsim explain`: fits the terminal, says what the data say, obeys nobody's control characters."""

import json
import re
from typing import Any

import pytest

from sim.experiment.explain import Asked, explain
from sim.experiment.explanation import Explanation
from sim.report.explain import explanation_json, explanation_text
from sim.report.explain_verdict import verdict_lines
from sim.report.plain_text import band, columns, labelled, number, printable, short
from sim.scenario.load import load_mapping, load_scenario

EAGLE: dict[str, Any] = {"method": "eagle3", "num_speculative_tokens": 7}


def explained(asked: Asked | None = None, **sections: Any) -> Explanation:
    scenario: dict[str, Any] = {
        "hardware": "h100-sxm",
        "model": "llama-3.1-8b",
        "arms": {"plain": {}, "k7": {"speculative_config": EAGLE, "acceptance": {"kind": "iid", "rate": 0.6}}},
    }
    return explain(load_mapping(scenario | sections), asked or Asked(batches=(1, 64), contexts=(1000,)))


def section(text: str, title: str) -> list[str]:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return lines[start + 1 : end]


@pytest.mark.parametrize("breakdown", [False, True])
@pytest.mark.parametrize(
    "name", ["quickstart", "multi-turn", "memory-pressure", "textbook", "mixed-traffic", "azure-replay"]
)
def test_at_most_100_plain_ascii_columns(name: str, breakdown: bool) -> None:
    found = explain(load_scenario(name), Asked(batches=(1, 1024, 100_000), ks=(0, 1, 5, 12, 40)))
    text = explanation_text(found, every_k=True, breakdown=breakdown)
    assert max(map(len, text.splitlines())) <= 100
    assert text.isascii()
    assert "\x1b" not in text
    assert ("by op group" in text) == breakdown


def test_many_arms_with_long_names_fit_too() -> None:
    arms: dict[str, Any] = {"plain": {}}
    for index in range(6):
        arms[f"an-arm-{index}-" + 60 * "x"] = {"speculative_config": EAGLE, "acceptance": {"kind": "iid", "rate": 0.6}}
    text = explanation_text(explained(arms=arms))
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("GPU total") == 2
    assert all(name in text for name in arms)


def test_headings_are_bold_when_wanted() -> None:
    found = explained()
    plain, coloured = explanation_text(found), explanation_text(found, colour=True)
    assert coloured != plain
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_table_shows_the_rows() -> None:
    found = explained()
    lines = section(explanation_text(found), "Step time, eagle3 (k7), context 1,000")
    head = "batch K total target draft host bound tok/step ms/token speed-up +1 tok"
    assert lines[0].split() == head.split()
    assert len(lines) == 2 + 4  # K = 0 and 7 at two batches
    cells = lines[-1].split()  # K total target draft host bound tok/step ms/token speed-up (band) +1 tok
    one = next(r for r in found.tables[0].rows if (r.batch, r.num_draft_tokens) == (64, 7))
    assert cells[0] == "7"
    assert float(cells[1]) == pytest.approx(one.total_ms, rel=5e-3)
    assert float(cells[6]) == pytest.approx(one.tokens_per_step, abs=0.006)
    assert float(cells[8]) == pytest.approx(one.speedup, abs=0.006)
    every = section(explanation_text(found, every_k=True), "Step time, eagle3 (k7), context 1,000")
    assert len(every) == 2 + 2 * 8


def test_best_k_is_the_one_with_the_largest_gain() -> None:
    found = explained()
    for line in section(explanation_text(found), "Speed-up over K = 0 by K")[1:]:
        batch, *gains, best = line.split()
        known = {r.num_draft_tokens: r.speedup for r in found.tables[0].rows if str(r.batch) == batch}
        top = max(known, key=lambda k: known[k] or 0.0)
        assert best == (f"K={top}" if top else "plain")
        assert len(gains) == 7


@pytest.mark.parametrize(
    ("draft_ms", "words"), [(1.0, "pays at every batch up to "), (100.0, "pays at no batch up to ")]
)
def test_verdicts_without_a_crossing(draft_ms: float, words: str) -> None:
    found = explained(cost_model={"kind": "constant", "target_ms": 10, "draft_ms": draft_ms})
    first, second, legend = verdict_lines(found)
    assert words in first
    assert "where the KV pool is full" in first
    assert "(" not in second
    assert legend == "  (speed-up over plain)"


def test_a_crossing_is_told_with_its_band() -> None:
    found = explained()
    crossing: Any = next(a for a in found.arms if a.name == "k7").break_even[0].document["crossings"]
    first, second, legend = verdict_lines(found)
    low, value, high = (round(crossing[0][key]) for key in ("model_band_low", "value", "model_band_high"))
    assert first == f"  k7  pays up to batch {value} (band {low}-{high})"
    assert second.startswith("      speed-up 1.")
    assert "8 % longer or shorter" in legend


def test_a_doubtful_verdict_says_where_it_would_turn() -> None:
    moe = explained(Asked(contexts=(1152,)), hardware="h200-sxm", model="qwen3-30b-a3b", arms={
        "plain": {},
        "k3": {"speculative_config": EAGLE | {"num_speculative_tokens": 3}, "acceptance": {"kind": "iid", "rate": 0.7}},
    })  # fmt: skip
    text = " ".join(" ".join(verdict_lines(moe)).split())
    answer = moe.arms[1].break_even[0]
    doubtful = answer.pays != answer.pays_if_slower and answer.document["status"] == "always"
    assert ("% longer at" in text) == doubtful


def test_contexts_are_named_when_there_are_several() -> None:
    found = explained(Asked(batches=(1,), contexts=(500, 8000)))
    text = explanation_text(found)
    assert "context 500: pays" in text
    assert "context 8,000: pays" in text
    assert "requests of 8,000 tokens in KV" in text
    assert text.count("Step time,") == 2


def test_names_cannot_command_the_terminal() -> None:
    arms = {
        "plain": {},
        "k7": {"speculative_config": EAGLE | {"model": "x\x1b[2J\ny"}, "acceptance": {"kind": "iid", "rate": 0.6}},
    }
    text = explanation_text(explained(arms=arms))
    assert "\x1b" not in text
    assert "x [2J y" in text


def test_json_holds_everything() -> None:
    found = explained()
    document = json.loads(explanation_json(found))
    assert document["schema_version"] == 1
    assert len(document["tables"][0]["rows"]) == 2 * 8
    assert document["tables"][0]["rows"][0]["op_ms"].keys() == {"linear", "attention", "lm_head", "collective", "fixed"}
    assert document["arms"][1]["break_even"][0]["document"]["status"] == "crosses"
    assert document["cost"]["relative_error"] == found.cost.relative_error


def test_numbers_for_people() -> None:
    values = (None, 0.0, 2e-17, 5e-5, 0.05, 0.32, 6.634, 9.999, 26.62, 131.4, 1234567.0)
    shown = ["-", "0", "0", "5.0e-05", "0.050", "0.320", "6.63", "10.0", "26.6", "131", "1,234,567"]
    assert [number(value) for value in values] == shown
    assert (band(1.5, 1.4, 1.6), band(1.5, 1.5, 1.5), band(None, None, None)) == ("1.50 (1.40-1.60)", "1.50", "-")
    assert (short("abcdef", 4), short("abc", 4), printable("a\x07b")) == ("abc~", "abc", "a b")


def test_alignment() -> None:
    assert list(columns([["a", "1"], ["bb", "22"]], indent=1, left=1)) == [" a    1", " bb  22"]
    assert list(labelled("long label", "text", 4)) == ["long label", "    text"]


def test_memory_of_the_host_and_varying_drafts_are_told() -> None:
    rest = {"method": "rest", "num_speculative_tokens": 3}
    arms = {"plain": {}, "rest": {"speculative_config": rest, "acceptance": {"kind": "iid", "rate": 0.6}}}
    text = " ".join(explanation_text(explained(arms=arms)).split())
    assert "no network, 12 GB of host memory; 0 look-ahead slots" in text
    assert "no closed form: the number of drafts depends on the text" in text
    assert "priced as if every step had K drafts" in text
