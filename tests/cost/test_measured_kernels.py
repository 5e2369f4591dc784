"""The fitted parameters against the measured kernels they claim to describe; gates a little above the fits' errors."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.calibration.attention import DECODE
from sim.calibration.operators import Rows
from sim.calibration.tables import read_table
from sim.cost.attention import AttentionShape, bind_gqa
from sim.cost.base import NO_ATTENTION, AttentionLoad
from sim.cost.collectives import Group
from sim.cost.formats import resolve_format
from sim.cost.gemm import bind_gemm
from sim.cost.waves import Waves
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.models.shapes import LinearShape

GEMM_GATES = [
    ("A100-SXM-80GB", "bfloat16", 10),
    ("H100-SXM", "bfloat16", 8),
    ("B200-SXM", "bfloat16", 8),
    ("L40S", "bfloat16", 13),
    ("H100-SXM", "fp8", 14),
    ("B200-SXM", "fp8", 14),
    ("L40S", "fp8", 14),
    ("B200-SXM", "nvfp4", 14),
]


def mape(predicted: np.ndarray, measured: np.ndarray) -> float:
    return 100 * float(np.mean(np.abs(predicted / measured - 1)))


@pytest.mark.parametrize(("gpu_name", "dtype", "gate"), GEMM_GATES)
def test_matrix_products(shared_data: Path, gpu_name: str, dtype: str, gate: float):
    gpu = find_gpu(gpu_name)
    fmt = resolve_format("bf16" if dtype == "bfloat16" else dtype, gpu)
    fit, error = choose_profile(gpu).linear(fmt.key)
    rows = pd.read_csv(shared_data / "gpu_timings" / "gemm.csv").query("gpu == @gpu_name and dtype == @dtype")
    assert len(rows) > 300
    assert error == 0.08
    predicted = [
        bind_gemm(LinearShape("x", n, k, 1), fmt, fit, gpu.memory_bandwidth).terms(m).seconds * 1e6
        for m, n, k in zip(rows.m, rows.n, rows.k, strict=True)
    ]
    assert mape(np.array(predicted), rows.time_us.to_numpy()) <= gate


@pytest.mark.parametrize("gpu_name", ["A100-SXM-80GB", "H100-SXM", "B200-SXM", "L40S"])
def test_decode_attention(shared_data: Path, gpu_name: str):
    """Rows whose KV exceeds the L2 cache, or is tiny."""
    table = read_table(shared_data / "gpu_timings" / "attention_decode.csv", DECODE.columns)
    own = table.where((table.text("gpu") == gpu_name) & (table.text("kv_dtype") == "bfloat16"))
    rows = Rows(find_gpu(gpu_name), own)
    clean = rows.where(DECODE.usable(rows))
    predicted = DECODE.price_us(clean, choose_profile(rows.gpu).decode_attention("bf16"))
    assert len(clean.table) > 100
    assert mape(predicted, clean.times_us) <= 10


def test_whole_waves_of_decode_attention_on_a100(shared_data: Path):
    """KV far beyond the L2 cache: 256 equal blocks over 216 places take 12 % longer than evenly spread."""
    rows = pd.read_csv(shared_data / "gpu_timings" / "attention_decode.csv")
    rows = rows[(rows.gpu == "A100-SXM-80GB") & (rows.kv_bytes > 120e6) & (rows.batch * rows.kv_heads >= 128)]
    gpu, fit = find_gpu("a100-sxm-80gb"), choose_profile(find_gpu("a100-sxm-80gb")).decode_attention("bf16")
    assert fit.blocks_per_sm
    assert fit.saturating_blocks
    waves = Waves(fit.blocks_per_sm * gpu.sms, fit.saturating_blocks)
    errors: dict[str, list[float]] = {"even": [], "waves": [], "even at 256": [], "waves at 256": []}
    for row in rows.itertuples():
        blocks, kv = row.batch * row.kv_heads, row.batch * row.context
        attention = bind_gqa(
            AttentionShape(1, row.q_heads, row.kv_heads, row.head_dim), 2, gpu, fit, choose_profile(gpu).sections()[0]
        )
        even = attention.terms(AttentionLoad(row.batch, row.batch, kv, kv), NO_ATTENTION)
        counted = even.seconds + (waves.slowdown(blocks) - 1) * even.memory_s
        for name, seconds in (("even", even.seconds), ("waves", counted)):
            for key in (name, f"{name} at 256") if blocks == 256 else (name,):
                errors[key].append(100 * (1e6 * seconds / row.time_us - 1))
    mean = {name: float(np.mean(values)) for name, values in errors.items()}
    assert mean["even at 256"] < -10
    assert abs(mean["waves at 256"]) < 3
    assert np.mean(np.abs(errors["waves"])) < 0.9 * np.mean(np.abs(errors["even"]))


def test_all_reduce(shared_data: Path):
    """12 % pooled; the two worst groups are PCIe with eight GPUs and NVLink 5 with two."""
    rows = pd.read_csv(shared_data / "gpu_timings" / "collectives.csv").query("op == 'all_reduce' and bytes <= 2**22")
    rows = rows[rows["stack"].str.startswith("vllm")]
    group_mape = {}
    relative = []
    for (gpu_name, num_gpus), group in rows.groupby(["gpu", "n_gpus"]):
        gpu = find_gpu(gpu_name)
        bound = Group(num_gpus, gpu, choose_profile(gpu)).all_reduces(1, 2.0)
        predicted = np.array([bound.seconds(size // 2) * 1e6 for size in group.bytes])
        relative.append(predicted / group.time_us.to_numpy())
        group_mape[gpu_name, num_gpus] = mape(predicted, group.time_us.to_numpy())
    assert len(rows) > 100
    assert 100 * np.abs(np.concatenate(relative) - 1).mean() <= 12
    assert max(group_mape.values()) <= 18
