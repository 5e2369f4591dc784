"""What verification costs inside an engine: published cells of vLLM, SGLang and MagicDec. `make reality` prints it."""

from pathlib import Path

import numpy as np
import pytest

from sim.hardware.engine_profile import find_engine
from sim.validation.engine_cells import shipped
from sim.validation.engine_fit import engine_lines, errors, explanations, fit_sglang, magicdec, sglang_cells, vllm_cells
from sim.validation.step_loop_fit import fit_host, loop_steps


@pytest.fixture
def published(shared_data: Path) -> Path:
    return shared_data / "published" / "published_visible.csv"


def test_a_cost_per_row_explains_vllm_and_more_kv_reads_add_nothing(published: Path) -> None:
    print("\n".join(engine_lines(published)))
    plain, rows, reads, both = explanations(published)
    assert rows.rms < reads.rms < plain.rms
    assert both.rms == pytest.approx(rows.rms, abs=0.05)
    assert both.parameters.kv_reads < 1.05
    assert both.errors.kv_reads < 0.5  # 2.5 reads, which short contexts alone would allow, are out


def test_verification_reads_the_kv_once_in_magicdec(published: Path) -> None:
    for found in magicdec(published):
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


def test_shipped_profiles_are_the_fits(published: Path) -> None:
    rows, sglang = explanations(published)[1], fit_sglang(published)
    for name, fitted in (("vllm-0.10", rows), ("sglang", sglang)):
        engine = find_engine(name)
        for field in ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "speculative_step_ms", "per_row_us"):
            value = getattr(engine, field)
            assert getattr(fitted.parameters, field) == pytest.approx(value.value, abs=max(value.error, 1e-9)), field


@pytest.mark.parametrize(("name", "limit"), [("vllm-0.10", 3.0), ("sglang", 3.5), ("vllm", 6.0)])
def test_mean_error_of_the_shipped_profiles(published: Path, name: str, limit: float) -> None:
    """`vllm` speaks for later versions, which schedule beside the GPU; here it meets cells of version 0.10."""
    cells = sglang_cells(published) if name == "sglang" else vllm_cells(published)
    found = errors(cells, shipped(find_engine(name), 1900.0))
    assert np.mean([abs(error) for group in found.values() for error in group]) < limit
