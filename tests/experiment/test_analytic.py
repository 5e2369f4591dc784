"""The closed form from the bound cost model against formulas on paper and the ideal roofline of `theory`."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sim.experiment.analytic import (
    AnalyticCurve,
    analytic_curve,
    analytic_document,
    decode_step,
    tokens_per_step,
    why_not,
)
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import LoadedScenario

Load = Callable[..., LoadedScenario]


def bound(loaded: LoadedScenario, *arms: str) -> list[ArmSetup]:
    return [set_up(loaded.scenario, arm, Path()) for arm in arms]


def test_constant_times_give_the_textbook_speedup(small: Load) -> None:
    plain, fast = bound(small(), "plain", "k3")
    curve = analytic_curve(fast, plain, 500)
    omega = (1 - 0.7**4) / 0.3
    assert tokens_per_step(fast, 8) == pytest.approx(omega, rel=1e-12)
    assert curve.speedup == pytest.approx(np.full(len(curve.batch), omega * 10 / 13), rel=1e-12)
    assert curve.crossings == ()
    assert analytic_document(curve)["status"] == "always"


def test_host_time_adds_up_or_hides(small: Load) -> None:
    cost = {"kind": "constant", "target_ms": 10, "draft_ms": 1, "host": {"base_ms": 2, "per_request_ms": 0.5}}
    for overlapped, expected_s in ((False, 0.010 + 0.002 + 4 * 0.0005), (True, 0.010)):
        (plain,) = bound(small(cost_model=cost, engine={"async_scheduling": overlapped}), "plain")
        assert decode_step(plain, 4, 100).seconds() == pytest.approx(expected_s, rel=1e-12)
        assert decode_step(plain, 4, 100).seconds(2.0) == pytest.approx(expected_s + 0.010, rel=1e-12)


def test_band_is_the_speedup_with_slower_and_faster_speculative_steps(small: Load) -> None:
    plain, fast = bound(small(cost_model={"kind": "roofline"}), "plain", "k3")
    curve = analytic_curve(fast, plain, 1000)
    assert (curve.band_low < curve.speedup).all()
    assert (curve.speedup < curve.band_high).all()
    b = 16
    step = decode_step(fast, b, 1000)
    error = step.error(fast.cost.relative_error)
    assert error > fast.cost.relative_error > 0
    slower = step.gpu_s * (1 + error) + step.host_s
    assert curve.band_low[b - 1] == pytest.approx(curve.speedup[b - 1] * step.seconds() / slower, rel=1e-12)
    down, up = curve.band_at(b)
    assert down == pytest.approx(math.log(curve.band_low[b - 1] / curve.speedup[b - 1]))
    assert down < 0 < up


def test_crossings_and_their_band_lie_in_order(small: Load) -> None:
    arm = {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 7},
        "acceptance": {"kind": "iid", "rate": 0.6},
    }
    loaded = small(cost_model={"kind": "roofline"}, arms={"plain": {}, "k7": arm})
    plain, fast = bound(loaded, "plain", "k7")
    document = analytic_document(analytic_curve(fast, plain, 300))
    assert document["status"] == "crosses"
    (crossing,) = document["crossings"]  # type: ignore[misc]
    assert crossing["direction"] == "gain_to_loss"
    assert crossing["model_band_low"] < crossing["value"] < crossing["model_band_high"]
    batch, gain = document["batch"], document["speedup"]
    assert batch[0] == 1  # type: ignore[index]
    assert all((g > 1) == (b < crossing["value"]) for b, g in zip(batch, gain, strict=True))  # type: ignore[call-overload]


def test_the_band_of_a_crossing_holds_it_where_there_are_several() -> None:
    """Experts: pays at 1 and 2, not at 3 to 5, pays again up to 8; the late edge never stops at the first of these."""
    speedup = np.array([1.1, 1.1, 0.9, 0.9, 0.9, 1.1, 1.1, 1.1, 0.9, 0.8, 0.7])
    curve = AnalyticCurve(np.arange(1, 12), speedup, speedup * 0.8, speedup * 1.2, 100, kv_limited=False)
    bands = [
        (mark["direction"], mark["model_band_low"], mark["model_band_high"])
        for mark in analytic_document(curve)["crossings"]  # type: ignore[attr-defined]
    ]
    assert [name for name, *_ in bands] == ["gain_to_loss", "loss_to_gain", "gain_to_loss"]
    (_, *first), (_, *second), (_, early, late) = bands
    assert first == [None, pytest.approx(9.6, abs=0.2)]
    assert second == [None, None]
    assert early is None
    assert late == pytest.approx(9.6, abs=0.2)


def test_batches_stop_where_the_kv_pool_does(small: Load) -> None:
    loaded = small(engine={"num_gpu_blocks_override": 200, "max_num_seqs": 64, "max_model_len": 1024})
    plain, fast = bound(loaded, "plain", "k3")
    curve = analytic_curve(fast, plain, 300)
    # 300 + 1 + 3 drafts + 3 slots ahead = 307 tokens = 20 blocks of 16
    assert (curve.batch[-1], curve.kv_limited) == (10, True)
    assert analytic_document(curve)["capacity_reached_first"] is True


def test_arms_without_a_closed_form_say_why(small: Load) -> None:
    ngram = {
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "acceptance": {"kind": "iid", "rate": 0.5},
    }
    (setup,) = bound(small(arms={"plain": {}, "ngram": ngram}), "ngram")
    assert "depends on the text" in why_not(setup)
