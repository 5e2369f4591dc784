"""The text of an overlay where its verdict is not the plain one."""

from dataclasses import replace
from typing import Any

import pytest

from sim.bench_results.base import Load, MeasuredPoint
from sim.experiment.attribution import Attribution, Explanation
from sim.experiment.load_test import LoadTest
from sim.experiment.overlay import Overlay
from sim.metrics.statistics import Interval
from sim.report.overlay import overlay_text
from sim.scenario.load import load_mapping


def fit(rms: float, at_limit: bool = False, **factors: float) -> Explanation:
    values = {name: Interval(value, 0.9 * value, 1.1 * value, 4) for name, value in factors.items()}
    return Explanation(values, 100 * rms, rms, at_limit)


SINGLE = fit(0.05, verify_time=1.3)
PAIR = fit(0.01, verify_time=1.2, host_time=2.0)
ANSWER = Attribution(
    fit(0.2),
    [SINGLE, fit(0.06, draft_time=1.8)],
    PAIR,
    ["acceptance"],
    ["verify_time"],
    False,
    SINGLE,
    True,
    {"verify_time": 0.031, "host_time": 0.8},
)

SCENARIO = load_mapping(
    {"hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}}, "what_if": {"verify_time": 2.0}}
).scenario
TEST = LoadTest("plain", MeasuredPoint("made up", "none", Load(8), 16, 200, 40, {}), SCENARIO)


def text(**changes: Any) -> str:
    found = Overlay([TEST], [], {}, [], replace(ANSWER, **changes), [], 1, 10)
    return " ".join(overlay_text(found).split())


def test_a_factor_beyond_the_error_of_the_model_is_doubted():
    """ln 1.3 is 3.3 sigma of 8 %, and 5.2 of 5 %."""
    found = Overlay([TEST], [], {}, [], ANSWER, [], 1, 10, model_error=0.05)
    assert "own error (one sigma 5 %): verify_time 1.30. Is it the same model, GPU" in overlay_text(found).replace(
        "\n  ", " "
    )
    assert "far beyond" not in overlay_text(replace(found, model_error=0.08))
    unexplained = replace(found, attribution=replace(ANSWER, explained=False))
    assert "far beyond" not in overlay_text(unexplained)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "One factor explains it: verify_time"),
        ({}, "paste into the scenario: what_if: verify_time: 2.6 "),  # 1.3 on top of the scenario's own 2
        ({}, "Measure a speculative arm too"),
        ({}, "off by less than this would not show here: verify_time 4 %, host_time 80 %."),
        ({"alike": ["verify_time", "draft_time"]}, "Not distinguishable with these tests: verify_time (passes"),
        ({"pair_needed": True, "best": PAIR}, "Two things are off: verify_time (passes that verify drafts); host_time"),
        ({"explained": False}, "No factor explains it: the best (verify_time) leaves 5.0 %"),
        ({"alike": [], "best": ANSWER.before}, "the inputs need no correction from these tests"),
        ({"singles": [fit(0.05, True, verify_time=5.0)]}, "5.00 (4.50-5.50) at its limit"),
        ({}, "These load tests say nothing about acceptance."),
    ],
)
def test_verdicts(changes: dict[str, Any], said: str) -> None:
    assert said in text(**changes)
