"""Fitting engine parameters to speculative cells: known parameters are found again, and causes are told apart."""

import pytest

from sim.validation.engine_cells import Arm, Cells, Engine, Lockstep, Parameters, Row, chain_speedups, step_times
from sim.validation.engine_fit import errors, fit_engine

TRUTH = Parameters(0.6, 0.01, 0.7, 0.0, 8.0, 1.0)
ARM = Arm("llama-3.1-8b", "eagle3", "h100-sxm")
FREE = ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "per_row_us", "kv_reads")


def cells(truth: Parameters) -> list[Cells]:
    """Speed-ups over the batch at short and long context, and steps over K, as a source would print them."""
    engine, found = Engine.of(ARM, truth), []
    for prompt, output in ((94, 166), (8000, 500)):
        run = Lockstep(prompt, output)
        rows = [
            Row("x", "3", b, 0.0, 0.0, run.plain(engine, b) / run.speculative(engine, b, 3, 2.4), 2.4)
            for b in (1, 16, 64, 128)
        ]
        found.append(chain_speedups(f"context {prompt}", rows, ARM, run))
    rows = [Row("x", str(k), 1, engine.step(1, 250, 0), engine.step(1, 250, k) / 2, 1.5, 2.0) for k in (2, 4, 7)]
    return [*found, step_times("steps", rows, ARM, 250)]


@pytest.mark.parametrize("truth", [TRUTH, TRUTH._replace(per_row_us=0.0, kv_reads=1.8)])
def test_a_cost_per_row_and_more_kv_reads_are_told_apart(truth: Parameters) -> None:
    start = Parameters(0.8, 0.005, 0.5, 0.0, 3.0, 1.2)
    found = fit_engine("both", cells(truth), FREE, start)
    assert found.rms < 0.3
    assert found.parameters.per_row_us == pytest.approx(truth.per_row_us, abs=1.0)
    assert found.parameters.kv_reads == pytest.approx(truth.kv_reads, abs=0.05)
    assert found.parameters.draft_pass_ms == pytest.approx(truth.draft_pass_ms, rel=0.05)


def test_errors_at_the_truth_are_zero() -> None:
    assert max(abs(e) for group in errors(cells(TRUTH), TRUTH).values() for e in group) < 1e-9


def test_tokens_per_step_solved_from_a_speedup_reproduce_it() -> None:
    engine, run = Engine.of(ARM, TRUTH), Lockstep(94, 166)
    length = run.tokens_per_step(engine, 3, 1.75)
    assert run.plain(engine, 1) / run.speculative(engine, 1, 3, length) == pytest.approx(1.75)
