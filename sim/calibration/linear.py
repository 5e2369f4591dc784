"""Fits of matrix products and experts."""

from dataclasses import replace
from typing import Any

import numpy as np

from sim.calibration.fit import Floats
from sim.calibration.operators import Mask, Operator, Parameter, Rows
from sim.cost.formats import Format, resolve_format
from sim.cost.gemm import bind_gemm
from sim.cost.moe import Experts, Routing
from sim.errors import CalibrationError
from sim.hardware.profile import ChosenProfile, Fit, GemmFit, MoeFit
from sim.models.shapes import ExpertShape, LinearShape

#: Weight formats as tables spell them. FP8 with block scales runs at the FP8 rate; `w4a16` multiplies in BF16.
DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp8_block": "fp8",
    "nvfp4": "nvfp4", "w4a16_mxfp4": "mxfp4", "mxfp4": "mxfp4", "int8": "int8", "int4": "int4",
}  # fmt: skip

#: `power_law_1.2` of the public collector: fits of all kernels put the shares of its experts near r^-0.85.
ROUTING_SKEW = 0.85

#: Measured times scatter: a row must beat the datasheet bandwidth by more than this to count as impossible.
_SCATTER = 0.95

#: A kernel that reaches less of the memory bandwidth than this is a fallback, not what a server would choose.
USABLE_MEMORY_EFFICIENCY = 0.4


def _no_constants(_: Rows) -> dict[str, Any]:
    return {}


def _dtype(rows: Rows) -> str:
    """The weight format of the rows, in our spelling."""
    dtype = str(rows.table.text("dtype")[0])
    if dtype not in DTYPES:
        raise CalibrationError(f"unknown format {dtype!r}; known: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def weight_format(rows: Rows) -> Format:
    """How the weights of the rows are stored and multiplied."""
    found = resolve_format(_dtype(rows), rows.gpu)
    weight_only = str(rows.table.text("dtype")[0]).startswith("w4a16")
    return Format("bf16", found.weight_bytes, 2.0, rows.gpu.bf16, False) if weight_only else found


def _gemm_us(rows: Rows, fit: GemmFit) -> Floats:
    table: Any = rows.table
    shape = LinearShape("table", table.numbers("n"), table.numbers("k"), 1)
    rate = bind_gemm(shape, weight_format(rows), fit, rows.gpu.memory_bandwidth)
    return np.asarray(rate.terms(table.numbers("m")).seconds * 1e6)


def _gemm_parameters(rows: Rows) -> tuple[Parameter, ...]:
    quantises = weight_format(rows).activation_bytes < 2.0
    return (
        Parameter("memory_efficiency", 0.85, 0.3, 1.0),  # nothing reads faster than the memory
        Parameter("compute_efficiency", 0.75, 0.2, 1.1),
        Parameter("smoothness", 2.5, 1.0, 8.0),
        Parameter("launch_us", 4.0, 0.0, 15.0),
        Parameter("per_1000_inputs_us", 0.2, 0.0, 1.0),
        Parameter("fill_inputs", 200.0, 0.0, 4000.0),
        Parameter("quantise_passes", 2.0 if quantises else 0.0, 0.0, 10.0 if quantises else 0.0),
    )


def _gemm_usable(rows: Rows) -> Mask:
    """Shapes of which no row beats the datasheet bandwidth: the others were read from the L2 cache."""
    fmt, (m, n, k) = weight_format(rows), (rows.table.numbers(c) for c in "mnk")
    traffic = fmt.weight_bytes * n * k + fmt.activation_bytes * m * k + 2.0 * m * n
    impossible = rows.times_us < _SCATTER * 1e6 * traffic / rows.gpu.memory_bandwidth
    keys = rows.table.keys(("n", "k"))
    warm = {key for key, fast in zip(keys, impossible, strict=True) if fast}
    return np.array([key not in warm for key in keys])


def _shipped_gemm(chosen: ChosenProfile, rows: Rows) -> Fit | None:
    return chosen.linear(weight_format(rows).key)[0]


GEMM = Operator(
    name="GEMM",
    file="gemm.csv",
    columns=("gpu", "dtype", "m", "n", "k", "time_us"),
    kinds=("dtype",),
    shape=("n", "k"),
    fit_type=GemmFit,
    constants=_no_constants,
    parameters=_gemm_parameters,
    price_us=_gemm_us,
    usable=_gemm_usable,
    shipped=_shipped_gemm,
)


def _distinct(rows: Rows) -> Floats:
    """Distinct experts: forced, as many as possible (`balanced`), or expected under the skew of the routing."""
    table = rows.table
    if "distinct_experts" in table.columns:
        return table.numbers("distinct_experts")
    experts, top_k, tokens = (table.numbers(c) for c in ("experts", "topk", "tokens"))
    routing = Routing(popularity_skew=ROUTING_SKEW)
    cases = zip(table.text("routing"), experts, top_k, tokens, strict=True)
    return np.array(
        [min(e, m * k) if kind == "balanced" else routing.distinct(int(e), int(k), int(m)) for kind, e, k, m in cases]
    )


def _experts(rows: Rows, fit: MoeFit) -> Experts:
    table: Any = rows.table
    tp = table.numbers("tp") if "tp" in table.columns else 1.0
    experts, top_k, hidden = (table.numbers(c) for c in ("experts", "topk", "hidden"))
    shape = ExpertShape(1, experts, top_k, hidden, table.numbers("inter") / tp, experts)
    return Experts(shape, weight_format(rows), fit, rows.gpu.memory_bandwidth)


def _moe_us(rows: Rows, fit: MoeFit) -> Floats:
    tokens: Any = rows.table.numbers("tokens")
    return np.asarray(_experts(rows, fit).reading(tokens, _distinct(rows)).seconds * 1e6)  # type: ignore[arg-type]


def _spread_us(rows: Rows, fit: MoeFit) -> Floats:
    """The busiest of the GPUs that share the experts: that is the one which the collector timed."""
    tokens: Any = rows.table.numbers("tokens")
    distinct, choices = _busiest(rows)
    return np.asarray(_experts(rows, fit).reading(tokens, distinct, choices).seconds * 1e6)  # type: ignore[arg-type]


def _busiest(rows: Rows) -> tuple[Floats, Floats]:
    """Distinct experts and choices of the busiest GPU: equal shares under `balanced`, else expected under the skew."""
    table, routing = rows.table, Routing(popularity_skew=ROUTING_SKEW)
    columns = (table.numbers(c).astype(int).tolist() for c in ("experts", "topk", "tokens", "ep"))
    found = []
    for kind, e, k, m, ep in zip(table.text("routing"), *columns, strict=True):
        even = max(m * k / ep, 1.0)
        found.append((min(e / ep, even), even) if kind == "balanced" else tuple(routing.busiest(e, k, m, ep)))
    distinct, choices = np.array(found).T
    return distinct, choices


def _spread_constants(rows: Rows) -> dict[str, Any]:
    """Whether the kernel walks over the choices of all tokens: TensorRT-LLM kernels do not (`sim.hardware.profile`)."""
    return {"routes_all_tokens": "trtllm" not in str(rows.table.text("kernel")[0])}


def _moe_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("memory_efficiency", 0.9, 0.1, 1.1),
        Parameter("compute_efficiency", 0.5, 0.05, 1.1),
        Parameter("smoothness", 1.5, 1.0, 6.0),
        Parameter("launch_us", 20.0, 0.0, 150.0),
        Parameter("routing_passes", 1.0, 0.0, 12.0),
    )


def _moe_usable(rows: Rows) -> Mask:
    """All experts on one GPU (or each split over all), and no row of its shape and routing beats the datasheet."""
    spread = rows.table.numbers("ep") > 1 if "ep" in rows.table.columns else np.zeros(len(rows.table), bool)
    return _cold(rows, _distinct(rows)) & ~spread


def _spread_usable(rows: Rows) -> Mask:
    """The experts spread whole over GPUs, and no row of its shape and routing beats the datasheet."""
    if "ep" not in rows.table.columns or "routing" not in rows.table.columns:
        return np.zeros(len(rows.table), bool)
    spread: Mask = rows.table.numbers("ep") > 1
    return _cold(rows, _busiest(rows)[0]) & spread


def _cold(rows: Rows, distinct: Floats) -> Mask:
    table, fmt = rows.table, weight_format(rows)
    tp = table.numbers("tp") if "tp" in table.columns else np.ones(len(table))
    width, hidden = table.numbers("inter") / tp, table.numbers("hidden")
    balanced = table.text("routing") == "balanced" if "routing" in table.columns else np.ones(len(table), bool)
    traffic = 3.0 * hidden * width * fmt.weight_bytes * distinct
    impossible = balanced & (rows.times_us < _SCATTER * 1e6 * traffic / rows.gpu.memory_bandwidth)
    keys = table.keys([c for c in ("hidden", "inter", "experts", "topk", "tp", "ep", "routing") if c in table.columns])
    warm = {key for key, fast in zip(keys, impossible, strict=True) if fast}
    cold: Mask = np.array([key not in warm for key in keys])
    return cold


def _shipped_moe(chosen: ChosenProfile, rows: Rows) -> Fit | None:
    """The profile's section, if it was fitted on this kernel or names none."""
    fmt, kernel = weight_format(rows), str(rows.table.text("kernel")[0]) if "kernel" in rows.table.columns else None
    fit = chosen.moe("weight_only" if fmt.weight_only else fmt.key)
    return fit if fit.kernel in (None, kernel) or kernel is None else None


MOE = Operator(
    name="experts",
    file="moe.csv",
    columns=("gpu", "dtype", "kernel", "routing", "tokens", "hidden", "inter", "experts", "topk", "tp", "ep",
             "time_us"),
    kinds=("dtype", "kernel"),
    shape=("hidden", "inter", "experts", "topk", "tp"),
    fit_type=MoeFit,
    constants=_no_constants,
    parameters=_moe_parameters,
    price_us=_moe_us,
    usable=_moe_usable,
    shipped=_shipped_moe,
)  # fmt: skip

SPREAD_EXPERTS = replace(
    MOE,
    name="experts spread over GPUs",
    constants=_spread_constants,
    shape=("hidden", "inter", "experts", "topk", "ep"),
    price_us=_spread_us,
    usable=_spread_usable,
)
