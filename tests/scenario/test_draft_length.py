"""`draft_length` of an arm: what is accepted, refused and noted."""

from collections.abc import Callable
from typing import Any

import pytest

from sim.errors import ScenarioError
from sim.scenario.load import load_mapping

EAGLE = {"method": "eagle3", "num_speculative_tokens": 3}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}
TABLE = {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1]]}
Load = Callable[..., Any]


def load(rule: object, config: dict | None = EAGLE, engine: dict | None = None) -> Any:
    arm: dict[str, Any] = {"draft_length": rule}
    if config is not None:
        arm |= {"speculative_config": config, "acceptance": {"kind": "iid", "rate": 0.6}}
    arms = {"plain": {}, "a": arm}
    return load_mapping({"hardware": "h100-sxm", "model": "llama-3.1-8b", "engine": engine or {}, "arms": arms})


def test_the_rule_in_force() -> None:
    assert load({"kind": "ema"}).scenario.arms["a"].k_rule.kind == "ema"
    assert load(None).scenario.arms["a"].k_rule.kind == "fixed"
    pasted = load(None, EAGLE | TABLE).scenario.arms["a"]
    stated = load({"kind": "batch_table"} | TABLE).scenario.arms["a"]
    assert pasted.k_rule == stated.k_rule
    assert pasted.k_rule.table(3).k == (3, 1)


@pytest.mark.parametrize(
    ("rule", "config", "engine", "message"),
    [
        ({"kind": "ema"}, None, {}, "has no effect: this arm does not speculate"),
        ({"kind": "ema"}, EAGLE | TABLE, {}, "contradicts speculative_config.num_speculative_tokens_per_batch_size"),
        ({"kind": "p_min", "p_min": 0.5, "sharpness": 0.3}, NGRAM, {}, "of which ngram has none"),
        ({"kind": "confidence", "sharpness": 0.3}, EAGLE, {"async_scheduling": True}, "does not wait for"),
        ({"kind": "heuristic", "num_assistant_tokens": 9}, EAGLE, {}, "at most num_speculative_tokens = 3"),
        ({"kind": "goodput", "ks": [0, 5]}, EAGLE, {}, "at most num_speculative_tokens = 3"),
        ({"kind": "goodput", "acceptance_rate_per_pos": [0.5]}, EAGLE, {}, "1 rates for num_speculative_tokens = 3"),
        ({"kind": "ema", "slots": [{"batch_size": 1, "candidate_steps": [1, 9]}]}, EAGLE, {}, "candidate step 9"),
        ({"kind": "p_min", "p_min": 0.5, "sharpness": 0.3, "n_min": 4}, EAGLE, {}, "n_min = 4"),
        ({"kind": "confidence"}, EAGLE, {}, "sharpness"),
        ({"kind": "heuristic", "at_zero": "stop"}, EAGLE, {}, "at_zero"),
        ({"kind": "emma"}, EAGLE, {}, "ema"),
    ],
)
def test_what_is_refused(rule: dict, config: dict | None, engine: dict, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(rule, config, engine)
    assert "a.draft_length" in str(caught.value)
    assert message in str(caught.value)


def test_what_has_no_effect_is_noted() -> None:
    (note,) = load({"kind": "goodput", "at_zero": "stop"}, NGRAM).notes
    assert "at_zero" in note
    assert "no effect" in note
    assert load({"kind": "goodput", "at_zero": "stop"}).notes == ()


def test_k_rules_can_be_varied() -> None:
    arms = {"plain": {}, "a": {"speculative_config": EAGLE, "acceptance": {"kind": "iid", "rate": 0.6}}}
    arms["a"]["draft_length"] = {
        "kind": "acceptance_gate",
        "acceptance_rate_window_size": 9,
        "acceptance_rate_threshold": 0.3,
    }
    vary = {"arms.a.draft_length.acceptance_rate_threshold": [0.1, 0.5]}
    sweep = {"vary": vary, "replicates": 1}
    loaded = load_mapping({"hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": arms, "sweep": sweep})
    assert loaded.scenario.sweep.vary == {"arms.a.draft_length.acceptance_rate_threshold": (0.1, 0.5)}
