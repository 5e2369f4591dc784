"""`specsim validate physics` on made-up folders, and the targets on the public tables."""

import numpy as np
import pytest
from click.testing import CliRunner

from sim.calibration.linear import GEMM
from sim.calibration.operators import Rows
from sim.calibration.tables import Table
from sim.cli.validate import validate
from sim.errors import CalibrationError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.validation.gates import gates
from sim.validation.markdown import render
from sim.validation.physics import compare_folder, timings_folder
from sim.validation.steps import compare_steps


def gemm_csv(gpu_name: str, scale: float = 1.0, dtype: str = "bfloat16") -> str:
    """A table that the shipped profile of `gpu_name` itself would produce, times `scale`."""
    gpu = find_gpu(gpu_name)
    cells = [(m, n, k) for n, k in ((2048, 4096), (8192, 4096), (4096, 14336)) for m in (1, 16, 128, 512, 2048, 8192)]
    m, n, k = np.array(cells).T.astype(str)
    columns = {"dtype": np.full(len(cells), "bfloat16"), "m": m, "n": n, "k": k}
    rows = Rows(gpu, Table("gemm", columns))
    times = scale * GEMM.price_us(rows, choose_profile(gpu).linear("bf16")[0])
    lines = [f"{gpu_name},{dtype},{a},{b},{c},{t}" for a, b, c, t in zip(m, n, k, times, strict=True)]
    return "\n".join(lines) + "\n"


HEADER = "gpu,dtype,m,n,k,time_us\n"


def test_a_perfect_table_has_no_error_and_a_slow_one_its_factor(tmp_path):
    (tmp_path / "gemm.csv").write_text(HEADER + gemm_csv("h100-sxm") + gemm_csv("a100-sxm-80gb", scale=1.25))
    report = compare_folder(tmp_path)
    found = {own.gpu: own for own in report.comparisons}
    assert found["H100-SXM"].errors("shipped_us").mape < 1e-6
    assert found["A100-SXM-80GB"].errors("shipped_us").mape == pytest.approx(20.0)
    assert found["A100-SXM-80GB"].errors("shipped_us").bias == pytest.approx(-20.0)
    assert found["H100-SXM"].errors("left_out_us").mape < 2.0
    assert found["H100-SXM"].errors("naive_us").mape > 10.0
    assert "fitted" in found["H100-SXM"].profile


def test_gpus_shapes_and_formats_appear_without_a_list_of_names(tmp_path):
    text = HEADER + gemm_csv("h200-sxm") + gemm_csv("h100-sxm", dtype="fp6")
    (tmp_path / "gemm.csv").write_text(text + "Abacus-9000,bfloat16,1,2048,2048,5.0\n")
    report = compare_folder(tmp_path)
    assert [own.gpu for own in report.comparisons] == ["H200-SXM"]
    assert "borrowed" in report.comparisons[0].profile
    assert sorted(skipped.rows for skipped in report.skipped) == [1, 18]
    text = render(report, [])
    assert "Abacus-9000" in text
    assert "fp6" in text
    assert "BF16 GEMM, H200-SXM" in text


@pytest.mark.usefixtures("without_matplotlib")
def test_command_prints_or_writes(tmp_path):
    (tmp_path / "gpu_timings").mkdir()
    (tmp_path / "gpu_timings" / "gemm.csv").write_text(HEADER + gemm_csv("h100-sxm"))
    shown = CliRunner().invoke(validate, ["physics", "--data", str(tmp_path)])
    assert shown.exit_code == 0
    assert "| BF16 GEMM, H100-SXM | 7 |" in shown.stdout
    out = tmp_path / "deep" / "physics.md"
    written = CliRunner().invoke(validate, ["physics", "--data", str(tmp_path), "-o", str(out)])
    assert written.exit_code == 0
    assert out.read_text() == shown.stdout
    assert "decode attention, pooled: - (limit 8 %): no data" in written.stdout


def test_a_folder_without_tables_is_named(tmp_path):
    with pytest.raises(CalibrationError, match="no timing tables; expected some of attention_decode"):
        timings_folder(tmp_path)


@pytest.mark.slow
def test_targets_on_the_public_tables(shared_data):
    folder = timings_folder(shared_data)
    steps = compare_steps(folder)
    found = gates(compare_folder(folder), steps)
    assert len(found) >= 17
    assert [f"{g.name}: {g.verdict}" for g in found if g.verdict != "met"] == []


@pytest.mark.slow
def test_whole_steps_on_the_public_tables(shared_data):
    steps = {(own.gpu, own.kind): own for own in compare_steps(timings_folder(shared_data))}
    for gpu in ("RTX-4090", "RTX-PRO-6000-SE"):
        assert steps[gpu, "decode"].shipped.mape < 4.0
        assert steps[gpu, "decode"].left_out.mape < 4.0
        assert steps[gpu, "verify"].left_out.mape < 9.0
        assert steps[gpu, "mixed"].left_out.mape < 9.0
        assert steps[gpu, "verify"].naive.mape > 15.0


def test_steps_of_unknown_models_and_incomplete_layers_are_left_out(tmp_path):
    layers = "gpu,model,tp,layer,tokens,time_us\n"
    layers += "RTX-4090,No-Such-Model,1,qkv_proj,1,5\nRTX-4090,Llama-3.1-8B,1,qkv_proj,1,5\n"
    mixed = "gpu,model,tp,q_heads,kv_heads,head_dim,prefill_q,prefill_ctx,n_decode,decode_ctx,time_us\n"
    mixed += "".join(f"RTX-4090,{name},1,32,8,128,0,0,1,64,9\n" for name in ("No-Such-Model", "Llama-3.1-8B"))
    (tmp_path / "layers.csv").write_text(layers)
    (tmp_path / "attention_mixed.csv").write_text(mixed)
    assert compare_steps(tmp_path) == []
    report = compare_folder(tmp_path)
    assert [own.operator for own in report.comparisons if own.left_out_us is not None] == []
    assert any("No-Such-Model" in skipped.what for skipped in report.skipped)
