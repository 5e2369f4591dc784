"""Decode steps at one context: what is timed as verification, and what a whole speculative step takes."""

from pathlib import Path

import pytest

from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import load_mapping
from sim.validation.harness.steps import stated_steps, step_times


def plain_arm(engine: str) -> ArmSetup:
    scenario = {
        "hardware": "a100-sxm-80gb", "model": "llama-2-7b", "engine": {"tensor_parallel_size": 8},
        "cost_model": {"kind": "roofline", "engine": engine}, "arms": {"plain": {}},
    }  # fmt: skip
    return set_up(load_mapping(scenario).scenario, "plain", Path())


def test_without_drafts_a_step_is_a_plain_one():
    times = step_times(plain_arm("magicdec"), 32, 4000, 0)
    assert times.plain_ms == times.verify_ms == times.step_ms


def test_bookkeeping_counts_in_the_step_but_not_as_verification():
    """1.5 ms of MagicDec's loop; the host is in all of them."""
    times, alone = (step_times(plain_arm(engine), 32, 4000, 2) for engine in ("magicdec", "none"))
    assert times.step_ms - times.verify_ms == pytest.approx(1.5)
    assert alone.step_ms == alone.verify_ms
    assert times.plain_ms > alone.plain_ms + 2.35


def test_steps_are_read_from_notes():
    assert stated_steps("gamma*T_draft=8.21 ms, T_verify=9.55 ms; and more") == (8.21, 9.55)
    assert stated_steps("no steps") is None
