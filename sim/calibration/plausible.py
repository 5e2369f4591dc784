"""Times that cannot be: faster than the datasheet allows, or a thousand times slower. Mostly a wrong unit."""

import numpy as np
from numpy.typing import NDArray

from sim.calibration.groups import Group
from sim.calibration.problems import Problems
from sim.calibration.read import Floats, Table
from sim.hardware.gpu import Gpu
from sim.models.model import WEIGHT_BYTES

#: Datasheet peaks are exact to far better than this.
_TOO_FAST, _TOO_SLOW = 2.0, 1000.0
#: KV that fits the L2 cache is read faster than memory allows, by so much at most.
_CACHE_SPEED = 10.0
_FAR_OFF = 100.0
#: No kernel is over sooner, and ideal times below one launch say nothing about slowness.
_SHORTEST_US, _LAUNCH_US = 0.5, 1.0

#: Spellings of formats in tables -> ours.
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8_e4m3": "fp8", "fp8_block": "fp8", "w4a16_mxfp4": "mxfp4"}


def check_times(table: Table, gpu: Gpu, problems: Problems) -> None:
    """Note rows whose time the datasheet of `gpu` rules out; all rows must be of this GPU."""
    ideal, time = ideal_us(table, gpu), table.numbers["time_us"]
    allowed = np.where(_in_cache(table, gpu), _CACHE_SPEED, 1.0) * _TOO_FAST
    with np.errstate(invalid="ignore"):
        told = {
            f"over {_TOO_FAST:g} times faster than the datasheet of {gpu.name} allows: looks like ms or s": (
                (time < ideal / allowed) | (time < _SHORTEST_US)
            ),
            f"over {_TOO_SLOW:g} times slower than the datasheet of {gpu.name} allows: looks like ns": (
                time > _TOO_SLOW * np.maximum(ideal, _LAUNCH_US)
            ),
        }
    for reason, bad in told.items():
        if bad.any():
            problems.add(table.file, "time_us", reason, (table.rows[i] for i in np.flatnonzero(bad)))


def check_prediction(group: Group, problems: Problems) -> None:
    """Note points a hundred times off what the base profile expects: fits are never so far off, units are."""
    ratio = group.measured / group.predict(group.base, np.arange(group.measured.size))
    for reason, bad in (("looks like ms or s", ratio < 1 / _FAR_OFF), ("looks like ns", ratio > _FAR_OFF)):
        for i in np.flatnonzero(bad):
            file, row = group.places[i]
            problems.add(file, "time", f"over {_FAR_OFF:g} times off what the base profile expects: {reason}", [row])


def ideal_us(table: Table, gpu: Gpu) -> Floats:
    """A time that no kernel can beat by much, per row; NaN where the table does not say enough."""
    n = table.numbers
    if table.form == "gemm":
        return _gemm(table, gpu)
    if table.form == "collectives":
        return 1e6 * n["bytes"] / (2.0 * gpu.link_bandwidth)
    if table.form == "attention_decode":
        return _kv_us(table, gpu)
    if table.form in ("attention_prefill", "attention_verify"):
        cached = n.get("context", n["q_len"]) - n["q_len"]
        pairs = n["batch"] * n["q_len"] * (np.maximum(cached, 0.0) + n["q_len"] / 2.0)
        flops: Floats = 4.0 * pairs * n["q_heads"] * n["head_dim"]
        compute: Floats = 1e6 * flops / _peak("bf16", gpu)
        return compute if table.form == "attention_prefill" else np.maximum(compute, _kv_us(table, gpu))
    return np.full(len(table.rows), np.nan)


def _kv_us(table: Table, gpu: Gpu) -> Floats:
    return 1e6 * _kv_bytes(table) / gpu.memory_bandwidth


def _kv_bytes(table: Table) -> Floats:
    """Keys and values at one byte each: the least that any format needs."""
    n = table.numbers
    size: Floats = 2.0 * n["batch"] * n["context"] * n["kv_heads"] * n["head_dim"]
    return size


def _in_cache(table: Table, gpu: Gpu) -> NDArray[np.bool_]:
    if table.form not in ("attention_decode", "attention_verify"):
        return np.zeros(len(table.rows), bool)
    fits: NDArray[np.bool_] = _kv_bytes(table) < 1.5 * gpu.l2
    return fits


def _gemm(table: Table, gpu: Gpu) -> Floats:
    n, dtypes = table.numbers, [DTYPES.get(name, name) for name in table.texts["dtype"]]
    width = np.array([WEIGHT_BYTES.get(name, 0.5) for name in dtypes])
    peak = np.array([_peak(name, gpu) for name in dtypes])
    memory = width * n["n"] * n["k"] / gpu.memory_bandwidth
    ideal: Floats = 1e6 * np.maximum(memory, 2.0 * n["m"] * n["n"] * n["k"] / peak)
    return ideal


def _peak(dtype: str, gpu: Gpu) -> float:
    """The fastest arithmetic that a format may use."""
    wide = {"bf16": gpu.bf16, "fp16": gpu.bf16, "fp8": max(gpu.fp8, gpu.bf16)}
    return wide.get(dtype, max(gpu.bf16, gpu.fp8, gpu.fp4))
