"""Batches of clones stay in lockstep, and one clone is a closed loop of one user."""

from pathlib import Path

import numpy as np
import pytest

from sim.acceptance.base import Tape
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario
from sim.validation.harness.base import Recorded
from sim.validation.harness.clones import clone_shares, cloned, clones
from sim.validation.harness.load import loaded
from sim.workload.requests import RequestTable


def scenario(batch: int, tokens_per_step: float = 2.4, requests: int = 1) -> Scenario:
    mean = {"kind": "length", "tokens_per_step": tokens_per_step, "num_speculative_tokens": 3, "shape": "min_variance"}
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": {"max_num_seqs": batch, "enable_prefix_caching": False},
            "cost_model": {"kind": "roofline", "engine": "vllm-0.10"},
            "arms": {
                "plain": {},
                "spec": {
                    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
                    "acceptance": mean,
                },
            },
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": batch},
                "prompt_tokens": {"kind": "fixed", "value": 50},
                "output_tokens": {"kind": "fixed", "value": 60},
                "num_requests": requests,
            },
        }
    ).scenario


def test_copies_of_a_row_and_of_its_acceptance():
    zeros = np.zeros(2, np.int64)
    requests = RequestTable(zeros, np.array([5, 6]), np.array([2, 3]), zeros, np.ones(2, np.bool_))
    tape = Tape(np.array([0, 1, 0, 2, 3], np.uint8), np.array([0, 3, 3, 3, 3], np.uint8))
    same, copies = cloned(requests, tape, 1, 2)
    assert same.prompt_tokens.tolist() == [6, 6]
    assert copies.accepted.tolist() == [0, 2, 3, 0, 2, 3]
    assert copies.proposed is not None
    assert copies.proposed.tolist() == [3, 3, 3, 3, 3, 3]


@pytest.mark.parametrize("arm", ["plain", "spec"])
def test_clones_finish_together(arm):
    one, many = (clones(scenario(batch), arm, None) for batch in (1, 32))
    assert many.running == pytest.approx(32)
    assert many.tokens_per_s * many.e2el_s == pytest.approx(32 * 60)
    assert one.tokens_per_s < many.tokens_per_s < 32 * one.tokens_per_s


def test_one_clone_of_one_request_is_a_closed_loop_of_one_user():
    alone, loop = clones(scenario(1), "spec", None), loaded(scenario(1), "spec", None)
    assert alone.tpot_ms == pytest.approx(loop.tpot_ms)
    assert alone.ttft_ms == pytest.approx(loop.ttft_ms)
    assert alone.e2el_s == pytest.approx(loop.e2el_s)


def test_recorded_requests_are_repeated_as_they_are(tmp_path: Path):
    """All drafts accepted: a recording of 1 + 12 tokens takes 3 steps of 4; none accepted: as plain, but dearer."""
    path = tmp_path / "x_accepted.csv"
    path.write_text("method,prompt_tokens,accepted\nall,50," + "d" * 12 + "\nnone,50," + "a" * 12 + "\n")
    plain = clones(scenario(4), "plain", Recorded(path, "all"))
    every, nothing = (clones(scenario(4), "spec", Recorded(path, name)) for name in ("all", "none"))
    assert plain.e2el_s * plain.tokens_per_s == pytest.approx(4 * 13)
    assert nothing.e2el_s > plain.e2el_s > every.e2el_s
    assert nothing.tpot_ms == pytest.approx(4 * every.tpot_ms, rel=0.02)  # context differs by a few tokens


def test_shares_of_a_step_add_up():
    plain, spec = (clone_shares(scenario(8), arm, None) for arm in ("plain", "spec"))
    assert sum(plain) == sum(spec) == pytest.approx(1.0)
    assert plain.draft == 0.0 < spec.draft
