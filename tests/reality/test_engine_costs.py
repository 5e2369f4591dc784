"""What verification costs inside an engine: published cells of vLLM, SGLang and MagicDec. `make reality` prints it."""

from pathlib import Path

import numpy as np
import pytest

from sim.hardware.engine_profile import find_engine
from sim.validation.candidate import PARAMETERS
from sim.validation.engine_cells import SGLANG, VLLM, Cell, Selection, predict, read_cases, selected
from sim.validation.engine_fit import (
    EXPLANATIONS,
    Responses,
    engine_lines,
    fit_engine,
    magicdec,
    sglang_responses,
    vllm_responses,
)
from sim.validation.step_loop_fit import fit_host, loop_steps


@pytest.fixture(scope="module")
def responses(shared_data: Path) -> dict[str, Responses]:
    """Both engines' cells and how they move with the parameters; about 90 s."""
    found = {"vllm-0.10": vllm_responses(shared_data), "sglang": sglang_responses(shared_data)}
    print("\n".join(engine_lines(found["vllm-0.10"], found["sglang"], shared_data)))
    return found


@pytest.mark.slow
def test_a_cost_per_row_explains_vllm_and_more_kv_reads_add_nothing(responses: dict[str, Responses]) -> None:
    plain, rows, reads, both = (fit_engine(responses["vllm-0.10"], fixed) for fixed in EXPLANATIONS.values())
    assert rows.rms < reads.rms < plain.rms
    assert both.rms == pytest.approx(rows.rms, abs=0.05)
    assert both.values["kv_reads"] < 1.05
    assert both.errors["kv_reads"] < 0.5  # 2.5 reads, which short contexts alone would allow, are out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vllm-0.10", "sglang"])
def test_shipped_profiles_are_the_fits(responses: dict[str, Responses], name: str) -> None:
    """Within half a sigma: what rounding to two digits and a linear model leave."""
    engine, fitted = find_engine(name), fit_engine(responses[name], {"kv_reads": 1.0})
    for field in PARAMETERS:
        value = getattr(engine, field)
        assert fitted.values[field] == pytest.approx(value.value, abs=0.5 * value.error), field


@pytest.mark.slow
def test_two_engines_and_two_gpus_ask_for_the_same_cost_per_row(responses: dict[str, Responses]) -> None:
    rows = [fit_engine(one, {"kv_reads": 1.0}) for one in responses.values()]
    apart = abs(rows[0].values["per_row_us"] - rows[1].values["per_row_us"])
    assert apart < 2 * np.hypot(*(one.errors["per_row_us"] for one in rows))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chosen", "limit"), [("sglang", SGLANG, 4.5)])
def test_mean_error_of_a_shipped_profile_on_its_cells(
    shared_data: Path, name: str, chosen: tuple[Selection, ...], limit: float
) -> None:
    assert mean_error(predict(selected(read_cases(shared_data), chosen), find_engine(name))) < limit


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limit"), [("vllm-0.10", 3.0), ("vllm", 6.0)])
def test_mean_error_on_cells_of_vllm(shared_data: Path, name: str, limit: float) -> None:
    """`vllm` speaks for later versions, which schedule beside the GPU; here it meets cells of version 0.10."""
    assert mean_error(predict(selected(read_cases(shared_data), VLLM), find_engine(name))) < limit


def mean_error(cells: list[Cell]) -> float:
    return float(np.mean([abs(cell.error) for cell in cells]))


def test_verification_reads_the_kv_once_in_magicdec(shared_data: Path) -> None:
    for found in magicdec(shared_data / "published" / "published_visible.csv"):
        assert 0.98 < found.reads < 1.06
        assert 10 < found.per_token_us < 30


def test_the_host_time_of_magicdec_is_the_fit_and_holds_elsewhere(shared_data: Path) -> None:
    """Fitted to plain steps of Llama-2-7B; those of Llama-3.1-8B and every verification are predicted."""
    found = fit_host(loop_steps(shared_data))
    print(found)
    host = find_engine("magicdec").host_base_ms
    assert found.host_ms == pytest.approx(host.value, abs=0.01)
    assert found.error_ms < host.error
    assert found.fitted < 3.0
    assert found.left_out < 5.0
    assert found.verify < 2.0
