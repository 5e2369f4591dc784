"""Whole-server error tables: what is read, what is priced, and the gates on the shipped servers."""

from pathlib import Path

import numpy as np
import pytest

from sim.errors import CalibrationError, SimError
from sim.validation.host_fit import HostFit, Prediction, Setting, fit_host
from sim.validation.servers import Server, served_model, server_gates, server_lines, server_tables, weight_dtype

HEADER = "id,system,model,backend,backend_version,precision,isl,osl,concurrency,tp,moe_tp,moe_ep,attention_dp,tpot_ms"


def dump(folder: Path, *rows: str) -> Path:
    (folder / "e2e_tpot.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def row(model: str = "llama-3.1-8b", system: str = "h100_sxm", backend: str = "vllm", **changes: object) -> str:
    fields = {"precision": "", "isl": 1024, "osl": 1024, "concurrency": 8, "tp": 1.0, "ep": 1.0, "tpot": 7.0} | changes
    start = f"x,{system},{model},{backend},,{fields['precision']}"
    load = ",".join(str(fields[name]) for name in ("isl", "osl", "concurrency", "tp", "tp", "ep"))
    return f"{start},{load},,{fields['tpot']}"


def test_repeated_settings_count_once_with_their_median(tmp_path):
    (found,) = server_tables(dump(tmp_path, row(tpot=7.0), row(tpot=700.0), row(tpot=7.2), row(concurrency=16)))
    assert (found.errors.points, found.capped, found.skipped) == (2, 0, 0)
    assert found.errors.worst < 30
    assert found.naive.bias < found.errors.bias
    assert found.left_out is None


OSS = row("gpt-oss-120b", "h200_sxm", precision="fp4")
OSS_EP = row("gpt-oss-120b", "h200_sxm", precision="fp4", ep=8.0, tp=8.0)


OSS_BOTH = row("gpt-oss-120b", "h200_sxm", precision="fp4", ep=2.0, tp=8.0)


def test_experts_spread_over_all_gpus_are_priced_and_other_layouts_counted(tmp_path):
    (found,) = server_tables(dump(tmp_path, OSS, OSS_EP, OSS_BOTH))
    assert (found.errors.points, found.skipped) == (2, 1)


def test_unknown_gpus_models_and_backends_are_left_out(tmp_path):
    rows = (row(system="h900"), row("nobody/nothing-1b"), row(backend="other"))
    assert server_tables(dump(tmp_path, *rows)) == []


def test_a_batch_that_the_kv_pool_cannot_hold_is_priced_at_what_it_holds(tmp_path):
    (found,) = server_tables(dump(tmp_path, row("llama-3.1-70b", tp=2, concurrency=512, isl=8192, precision="fp8")))
    assert found.capped == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([row(), row(tpot="fast")], "e2e_tpot.csv:3: tpot_ms: expected a finite number above 0, found 'fast'"),
        ([row(), row(), row(tpot="nan")], "e2e_tpot.csv:4: tpot_ms: expected a finite number above 0"),
        ([row(concurrency=0)], "e2e_tpot.csv:2: concurrency: expected a whole number of at least 1, found '0'"),
        ([], "no rows"),
    ],
)
def test_malformed_tables_name_the_row(tmp_path, lines, words):
    with pytest.raises(SimError, match=words):
        server_tables(dump(tmp_path, *lines))


def test_missing_columns_are_named(tmp_path):
    (tmp_path / "e2e_tpot.csv").write_text("model,system\na,b\n")
    with pytest.raises(CalibrationError, match="missing columns backend"):
        server_tables(tmp_path)


def test_without_the_table_there_is_nothing(tmp_path):
    assert server_tables(tmp_path) == []


def test_host_times_are_found_again():
    truth = HostFit(0.4, 0.02)
    points = [
        Prediction(Setting(1024, 1024, b, 1), b, float(truth.base_ms + truth.per_request_ms * b + k), k, 0.0, 0.0)
        for b, k in ((1, 5.0), (8, 6.0), (64, 9.0), (128, 12.0))
    ]
    found = fit_host([points])
    assert (found.base_ms, found.per_request_ms) == pytest.approx((0.4, 0.02), rel=0.05)


GATES = {("h100-sxm", "fp8"): 9, ("b200-sxm", "fp8"): 9, ("b200-sxm", "fp4"): 12, ("h200-sxm", "fp4"): 12}


def test_shipped_vllm_servers(shared_data: Path) -> None:
    rows = server_tables(shared_data / "gpu_timings")
    print("\n".join(server_lines(rows)))
    vllm = {(r.server.gpu, r.server.precision): r for r in rows if r.server.backend == "vllm"}
    assert set(vllm) == set(GATES)
    for key, gate in GATES.items():
        assert vllm[key].errors.mape <= gate, key
        assert vllm[key].left_out is not None
        assert vllm[key].left_out.mape <= gate, key  # host times fitted without this server
        assert vllm[key].naive.mape > 3 * vllm[key].errors.mape
    gates = server_gates(rows)
    assert [limit for _, limit, _ in gates] == [9.0, 9.0, 12.0]
    assert all(found.mape <= limit for _, limit, found in gates)
    assert np.mean([r.errors.mape for r in rows if r.server.backend == "trtllm"]) < 15


@pytest.mark.parametrize(
    ("model", "precision", "ours"),
    [
        ("meta-llama/Llama-3.1-70B", "", ("Llama-3.1-70B", "bf16")),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "", ("Llama-3.3-70B", "fp8")),
        ("deepseek-ai/DeepSeek-R1-0528", "fp8_block", ("DeepSeek-R1", "fp8")),
        ("Qwen/Qwen3-32B", "w4a16", ("Qwen3-32B", "int4")),
        ("openai/gpt-oss-120b", "fp4", ("gpt-oss-120b", "mxfp4")),
        ("nvidia/Llama-3.1-70B-Instruct-FP4", "fp4", ("Llama-3.1-70B", "nvfp4")),
    ],
)
def test_models_and_precisions_as_dumps_write_them(model, precision, ours):
    found = served_model(model)
    assert (found.name, weight_dtype(Server(model, "h100-sxm", "vllm", precision), found)) == ours
