"""Acceptance of one K that stands in for another: said where the drafter's first drafts depend on K."""

from typing import Any

import pytest

from sim.scenario.load import load_mapping

RATES = {"kind": "per_position", "rates": [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]}
MEASURED = {"kind": "table_by_k", "tokens_per_step": {7: 3.5, 3: 2.6}}
BY_BATCH = {"num_speculative_tokens_per_batch_size": [[1, 8, 7], [9, 256, 3]]}
KEY = "arms.a.speculative_config.num_speculative_tokens"


def arm(acceptance: dict[str, Any], method: str = "dflash", k: int = 7, **config: Any) -> dict[str, Any]:
    return {
        "speculative_config": {"method": method, "num_speculative_tokens": k, **config},
        "acceptance": acceptance,
    }


def notes(arms: dict[str, Any], **sweep: Any) -> list[str]:
    data = {"hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}, **arms}, "sweep": sweep}
    return [note for note in load_mapping(data).notes if "depend on K" in note]


@pytest.mark.parametrize(
    ("arms", "sweep"),
    [
        ({"a": arm(RATES, **BY_BATCH)}, {}),
        ({"a": arm(RATES)}, {"vary": {KEY: [3, 7]}}),
        ({"a": arm(RATES), "b": arm(RATES, k=3)}, {}),
    ],
)
def test_a_block_drafter_with_one_acceptance_for_several_k_is_told(arms: dict[str, Any], sweep: dict[str, Any]) -> None:
    assert len(notes(arms, **sweep)) == len(arms)
    assert "measure each K and state table_by_k" in notes(arms, **sweep)[0]


@pytest.mark.parametrize(
    "arms",
    [
        {"a": arm(RATES)},
        {"a": arm(MEASURED, **BY_BATCH)},
        {"a": arm(RATES, method="eagle3", **BY_BATCH)},
        {"a": arm(RATES), "b": arm({**RATES, "rates": [0.9, 0.8, 0.7]}, k=3)},
    ],
)
def test_one_k_or_a_measurement_of_each_is_not(arms: dict[str, Any]) -> None:
    assert notes(arms) == []
