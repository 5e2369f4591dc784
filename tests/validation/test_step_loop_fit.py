"""The host time of a loop: found again in made-up steps, fitted to one model only."""

import pytest

from sim.validation.step_loop_fit import LoopStep, fit_host, loop_steps


def steps(host_ms: float, verify_ms: float = 1.0) -> list[LoopStep]:
    return [
        LoopStep(model, ms, ms + 1.0, ms + host_ms * (1.0 if model == "a" else 2.0), ms + verify_ms + host_ms)
        for model in ("a", "b")
        for ms in (4.0, 8.0, 30.0)
    ]


def test_a_known_host_time_is_found_from_the_fitted_model_alone():
    found = fit_host(steps(2.0), "a")
    assert found.host_ms == pytest.approx(2.0)
    assert found.error_ms == pytest.approx(0.0, abs=1e-9)
    assert found.fitted == pytest.approx(0.0, abs=1e-9)
    assert found.left_out > 5
    assert found.verify == pytest.approx(0.0, abs=1e-9)


def test_only_rows_of_that_loop_are_taken(publish):
    row = {
        "metric": "ms per token per step (decode only)", "gpu": "A100", "n_gpus": "8", "plain_value": "8.3",
        "engine": "authors backend (gpt-fast + FlashInfer, CUDA graphs)", "k_or_tree": "2", "input_len": "8000",
        "speedup": "1.2", "notes": "gamma*T_draft=2.0 ms, T_verify=9.5 ms",
    }  # fmt: skip
    (found,) = loop_steps(publish(row, row | {"engine": "gpt-fast"}, {}))
    assert (found.plain_measured_ms, found.verify_measured_ms) == (8.3, 9.5)
    assert 0 < found.plain_ms < found.verify_ms
