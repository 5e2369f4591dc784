"""Fitting engine parameters to speculative cells: known parameters are found again, and causes are told apart."""

import csv
from pathlib import Path

import pytest

from sim.errors import InvariantError
from sim.hardware.engine_profile import find_engine
from sim.scenario.build import set_up
from sim.scenario.load import load_mapping
from sim.validation.candidate import PARAMETERS, values_of, with_engine, with_values
from sim.validation.engine_cells import Cell, Selection, predict, read_cases, selected
from sim.validation.engine_fit import Responses, fit_engine, left_out, responses
from sim.validation.published import COLUMNS

ENGINE = find_engine("vllm-0.10")
TRUTH = {"host_base_ms": 0.6, "draft_pass_ms": 0.7, "per_row_us": 9.0, "kv_reads": 1.0}
CHOSEN = (Selection("short", "SHORT"), Selection("long", "LONG"), Selection("over K", "SWEEP"))


def row(case: str, k: int, batch: int, prompt: int, output: int) -> dict[str, str]:
    return {
        "case_id": f"{case}-{k}-{batch}", "source": case, "target_model": "Llama-3.1-8B", "gpu": "H100", "n_gpus": "1",
        "engine": "vLLM 0.10.1", "method": "EAGLE-3", "k_or_tree": str(k), "dataset": case, "input_len": str(prompt),
        "output_len": str(output), "batch_or_concurrency": str(batch), "metric": "output tok/s", "plain_value": "100",
        "speedup": "1.5", "mean_accepted_len": "2.4", "trust": "5", "notes": "clones",
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Speed-ups over the batch at short and long context, and over K, as a source would print them."""
    there = tmp_path_factory.mktemp("published")
    rows = [
        row(case, 3, batch, *run) for case, run in (("SHORT", (94, 800)), ("LONG", (6000, 800))) for batch in (1, 64)
    ]
    rows += [row("SWEEP", k, 1, 250, 800) for k in (2, 7)]
    with (there / "some.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return there


@pytest.fixture(scope="module")
def shipped(folder: Path) -> Responses:
    return responses(folder, ENGINE, CHOSEN, tuple(TRUTH))


@pytest.mark.parametrize("truth", [TRUTH, {**TRUTH, "per_row_us": 5.0, "kv_reads": 1.3}])
def test_a_cost_per_row_and_more_kv_reads_are_told_apart(
    folder: Path, shipped: Responses, truth: dict[str, float]
) -> None:
    """Tolerances: what taking logarithms as linear leaves, so far from the shipped values."""
    true = predict(selected(read_cases(folder), CHOSEN), with_values(ENGINE, truth))
    measured = tuple(cell._replace(measured=there.predicted) for cell, there in zip(shipped.cells, true, strict=True))
    cells = shipped._replace(cells=measured)
    found = fit_engine(cells, {})
    assert found.rms < 0.1
    assert found.values["host_base_ms"] == pytest.approx(truth["host_base_ms"], abs=0.01)
    assert found.values["draft_pass_ms"] == pytest.approx(truth["draft_pass_ms"], abs=0.01)
    assert found.values["per_row_us"] == pytest.approx(truth["per_row_us"], abs=0.3)
    assert found.values["kv_reads"] == pytest.approx(truth["kv_reads"], abs=0.01)
    assert found.values["speculative_step_ms"] == ENGINE.speculative_step_ms.value
    assert found.errors["speculative_step_ms"] == 0.0
    out = left_out(cells, {})
    assert out["over K"] < 0.5
    assert out["long"] == max(out.values()) > 1.0  # nothing else tells a KV read from a row


def test_a_plain_arm_that_rows_share_counts_once(folder: Path) -> None:
    cells: list[Cell] = predict(selected(read_cases(folder), CHOSEN), None)
    assert [cell.source for cell in cells] == ["short"] * 2 + ["long"] * 2 + ["over K"] * 2 + [
        "short, plain", "short, plain", "long, plain", "long, plain", "over K, plain",
    ]  # fmt: skip


def test_an_engine_that_is_not_shipped_prices_a_scenario() -> None:
    scenario, naive = (
        load_mapping({"hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}}, **cost}).scenario
        for cost in ({}, {"cost_model": {"kind": "naive"}})
    )
    setup = set_up(with_engine(scenario, with_values(ENGINE, {"draft_pass_ms": 9.0})), "plain", Path())
    assert values_of(ENGINE).keys() == set(PARAMETERS)
    assert setup.cost.draft_launch_s == pytest.approx(9e-3)
    with pytest.raises(InvariantError, match="naive has no engine"):
        with_engine(naive, ENGINE)
