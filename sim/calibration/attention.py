"""Fits of decode attention, prefill attention and FlashAttention-2 with mixed batches."""

from pathlib import Path
from typing import Any

import numpy as np

from sim.calibration.fit import Floats
from sim.calibration.operators import Mask, Operator, Parameter, Rows
from sim.cost.attention import AttentionShape, MlaShape, bind_gqa, bind_mla
from sim.cost.base import NO_ATTENTION, AttentionLoad
from sim.cost.formats import resolve_format
from sim.cost.gemm import bind_gemm, sum_terms
from sim.errors import CalibrationError
from sim.hardware.profile import ChosenProfile, DecodeFit, ExtendFit, Fit, choose_profile
from sim.models.catalogue import find_model

#: KV up to this part of the L2 cache is read from it again and again by a benchmark; above 1.5 times, never.
_WARM, _COLD = 0.05, 1.5

_NO_EXTEND = ExtendFit(source="none", kernel="packed", launch_us=0.0, compute_efficiency=1.0)


def _shape(table: Any) -> AttentionShape:
    return AttentionShape(1, table.numbers("q_heads"), table.numbers("kv_heads"), table.numbers("head_dim"))


def _kv_bytes(rows: Rows) -> int:
    if "kv_dtype" not in rows.table.columns:
        return 2
    return 1 if str(rows.table.text("kv_dtype")[0]).startswith(("fp8", "int8")) else 2


def _decode_us(rows: Rows, fit: DecodeFit) -> Floats:
    """Rows with little KV were read from the L2 cache: faster by `l2_speedup`."""
    table: Any = rows.table
    batch, context = table.numbers("batch"), table.numbers("context")
    bound: Any = bind_gqa(_shape(table), _kv_bytes(rows), rows.gpu, fit, _extend_of(rows.gpu))
    packed = getattr(bound, "packed", bound)
    terms = packed.decoding(AttentionLoad(batch, batch, batch * context, batch * context))
    saved = np.where(_decode_bytes(rows) < _WARM * rows.gpu.l2, 1.0 - 1.0 / fit.l2_speedup, 0.0)
    hidden = np.where(terms.memory_s >= terms.compute_s, terms.memory_s * saved, 0.0)
    return np.asarray((terms.seconds - hidden) * 1e6)


def _extend_of(gpu: Any) -> ExtendFit:
    """Tiles and compute rate of the score products come with the prefill fit of the profile."""
    return choose_profile(gpu).sections().extend_attention


def _decode_bytes(rows: Rows) -> Floats:
    table = rows.table
    width = table.numbers("kv_heads") * table.numbers("head_dim")
    return 2.0 * _kv_bytes(rows) * width * table.numbers("batch") * table.numbers("context")


def _decode_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("launch_us", 10.0, 0.0, 40.0),
        Parameter("kv_efficiency", 0.8, 0.2, 1.1),
        Parameter("block_us", 2.0, 0.0, 20.0),
        Parameter("doubling_us", 0.5, 0.0, 9.0),
        Parameter("l2_speedup", 2.0, 1.0, 8.0),
    )


def _decode_usable(rows: Rows) -> Mask:
    size = _decode_bytes(rows)
    clean: Mask = (size > _COLD * rows.gpu.l2) | (size < _WARM * rows.gpu.l2)
    return clean


def _shipped_decode(chosen: ChosenProfile, rows: Rows) -> Fit | None:
    return chosen.decode_attention("fp8" if _kv_bytes(rows) == 1 else "bf16")


def _no_constants(_: Rows) -> dict[str, Any]:
    return {}


DECODE = Operator(
    name="decode attention",
    file="attention_decode.csv",
    columns=("gpu", "kernel", "kv_dtype", "batch", "context", "q_heads", "kv_heads", "head_dim", "time_us"),
    kinds=("kv_dtype", "kernel"),
    shape=("q_heads", "kv_heads", "head_dim"),
    fit_type=DecodeFit,
    constants=_no_constants,
    parameters=_decode_parameters,
    price_us=_decode_us,
    usable=_decode_usable,
    shipped=_shipped_decode,
)


def _extend_us(rows: Rows, fit: ExtendFit, decode: AttentionLoad, extend: AttentionLoad) -> Floats:
    own = choose_profile(rows.gpu, "ideal" if fit.source == "definition" else "auto").decode_attention("bf16")
    bound: Any = bind_gqa(_shape(rows.table), 2, rows.gpu, own, fit)
    return np.asarray(bound.extending(decode, extend).seconds * 1e6)


def _prefill_us(rows: Rows, fit: ExtendFit) -> Floats:
    batch, new = rows.table.numbers("batch"), rows.table.numbers("q_len")
    load: Any = (batch, batch * new, batch * new, batch * new * (new + 1.0) / 2.0)
    return _extend_us(rows, fit, NO_ATTENTION, AttentionLoad(*load))


def is_fa2(rows: Rows) -> bool:
    """FlashAttention-2 kernels, by the name of the kernel where it says so, else by the profile of the GPU."""
    kernel = str(rows.table.text("kernel")[0]) if "kernel" in rows.table.columns else ""
    if kernel in ("", "flash_attn"):
        return _extend_of(rows.gpu).kernel == "fa2"
    return kernel.endswith("fa2")


def _extend_constants(rows: Rows) -> dict[str, Any]:
    if is_fa2(rows):
        return {"kernel": "fa2", "compute_efficiency": _extend_of(rows.gpu).compute_efficiency, "smoothness": 2.0}
    return {"kernel": "packed"}


def _extend_parameters(rows: Rows) -> tuple[Parameter, ...]:
    common = (Parameter("launch_us", 8.0, 0.0, 40.0), Parameter("activation_efficiency", 0.5, 0.1, 2.0))
    if is_fa2(rows):
        serial = Parameter("serial_ns_per_token", 25.0, 3.0, 80.0)
        return (*common, serial, Parameter("wave_us", 3.0, 0.0, 20.0))
    own = Parameter("compute_efficiency", 0.6, 0.1, 1.1)
    return (*common, own, Parameter("sequence_us", 0.3, 0.0, 10.0))


def _prefill_usable(rows: Rows) -> Mask:
    """One new token is decode, whatever the table calls it."""
    several: Mask = rows.table.numbers("q_len") > 1
    return several


def _shipped_extend(chosen: ChosenProfile, _: Rows) -> Fit | None:
    return chosen.sections().extend_attention


PREFILL = Operator(
    name="prefill attention",
    file="attention_prefill.csv",
    columns=("gpu", "kernel", "batch", "q_len", "q_heads", "kv_heads", "head_dim", "time_us"),
    kinds=("kernel",),
    shape=("q_heads", "kv_heads", "head_dim"),
    fit_type=ExtendFit,
    constants=_extend_constants,
    parameters=_extend_parameters,
    price_us=_prefill_us,
    usable=_prefill_usable,
    shipped=_shipped_extend,
)


def _mixed_us(rows: Rows, fit: ExtendFit) -> Floats:
    """One chunk of `prefill_q` tokens over `prefill_ctx` cached ones, with decoding sequences in the same call."""
    columns = ("prefill_q", "prefill_ctx", "n_decode", "decode_ctx")
    new, cached, batch, context = (rows.table.numbers(name) for name in columns)
    ones: Any = np.ones_like(new)
    extend: Any = (ones, new, new + cached, new * cached + new * (new + 1.0) / 2.0)
    decode: Any = (batch, batch, batch * context, batch * context)
    return _extend_us(rows, fit, AttentionLoad(*decode), AttentionLoad(*extend))


def _mixed_usable(rows: Rows) -> Mask:
    several: Mask = rows.table.numbers("prefill_q") > 1
    return several


MIXED = Operator(
    name="mixed attention",
    file="attention_mixed.csv",
    columns=("gpu", "model", "q_heads", "kv_heads", "head_dim", "prefill_q", "prefill_ctx", "n_decode", "decode_ctx",
             "time_us"),
    kinds=(),
    shape=("prefill_q", "prefill_ctx"),
    fit_type=ExtendFit,
    constants=_extend_constants,
    parameters=_extend_parameters,
    price_us=_mixed_us,
    usable=_mixed_usable,
    shipped=_shipped_extend,
)  # fmt: skip


def _pure_us(rows: Rows, fit: DecodeFit) -> Floats:
    table: Any = rows.table
    batch, context = table.numbers("n_decode"), table.numbers("decode_ctx")
    bound: Any = bind_gqa(_shape(table), 2, rows.gpu, fit, _extend_of(rows.gpu))
    load = AttentionLoad(batch, batch, batch * context, batch * context)
    return np.asarray(getattr(bound, "packed", bound).decoding(load).seconds * 1e6)


def _pure_parameters(rows: Rows) -> tuple[Parameter, ...]:
    return _decode_parameters(rows)[:-1]


def _pure_usable(rows: Rows) -> Mask:
    decoding: Mask = (rows.table.numbers("prefill_q") == 0) & (rows.table.numbers("n_decode") > 0)
    return decoding


MIXED_DECODE = Operator(
    name="decode attention in an engine",
    file="attention_mixed.csv",
    columns=MIXED.columns,
    kinds=(),
    shape=("n_decode",),
    fit_type=DecodeFit,
    constants=_no_constants,
    parameters=_pure_parameters,
    price_us=_pure_us,
    usable=_pure_usable,
    shipped=_shipped_decode,
)


def _mla_us(rows: Rows, fit: DecodeFit) -> Floats:
    """All rows; those with the same heads and formats are priced at once."""
    keys, times = rows.table.keys(("heads", "weight_dtype", "kv_dtype")), np.zeros(len(rows.table))
    for key in sorted(set(keys)):
        mask = np.array([own == key for own in keys])
        times[mask] = _mla_module_us(rows.where(mask), fit)
    return times


def _mla_module_us(rows: Rows, fit: DecodeFit) -> Floats:
    """The module of DeepSeek-V3: projections at the profile's rates, and attention to the latent."""
    table, gpu, chosen = rows.table, rows.gpu, choose_profile(rows.gpu)
    model, heads = find_model("deepseek-v3", Path()), int(table.numbers("heads")[0])
    if heads > model.q_heads:
        raise CalibrationError(f"{heads} heads: the module of DeepSeek-V3 has {model.q_heads}")
    if fit.source == "definition":
        chosen = choose_profile(gpu, "ideal")
    weights = resolve_format("fp8" if str(table.text("weight_dtype")[0]).startswith("fp8") else "bf16", gpu)
    rate = chosen.linear(weights.key)[0]
    batch: Any = table.numbers("batch")
    shapes = model.linear_shapes(model.q_heads // heads)
    own = [shape._replace(layers=1) for shape in shapes if shape.name in _PROJECTIONS]
    projections = sum_terms([bind_gemm(s, weights, rate, gpu.memory_bandwidth) for s in own], batch)
    shape = MlaShape(1, heads, model.kv_lora_rank, model.qk_rope_dim)
    kv: Any = batch * table.numbers("context")
    bound = bind_mla(shape, _kv_bytes(rows), gpu, fit, chosen.sections().extend_attention)
    return np.asarray((projections.seconds + bound.decoding(AttentionLoad(batch, batch, kv, kv)).seconds) * 1e6)


_PROJECTIONS = ("q", "q_a", "q_b", "kv_a", "kv_b", "o")


def _mla_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("launch_us", 50.0, 0.0, 200.0),
        Parameter("kv_efficiency", 0.9, 0.2, 1.1),
        Parameter("block_us", 0.5, 0.0, 10.0),
        Parameter("compute_efficiency", 0.8, 0.1, 1.5),
    )


def _mla_usable(rows: Rows) -> Mask:
    """Weights are read from memory; latents may not be: the same rule as for decode attention."""
    width = np.where(np.char.startswith(rows.table.text("kv_dtype"), "fp8"), 576.0, 1152.0)
    size = width * rows.table.numbers("batch") * rows.table.numbers("context")
    clean: Mask = (size > _COLD * rows.gpu.l2) | (size < _WARM * rows.gpu.l2)
    return clean


def _shipped_mla(chosen: ChosenProfile, _: Rows) -> Fit | None:
    return chosen.sections().mla


MLA = Operator(
    name="latent attention module (MLA decode)",
    file="mla_decode_module.csv",
    columns=("gpu", "kernel", "weight_dtype", "kv_dtype", "heads", "batch", "context", "time_us"),
    kinds=(),
    shape=("heads", "context"),
    fit_type=DecodeFit,
    constants=_no_constants,
    parameters=_mla_parameters,
    price_us=_mla_us,
    usable=_mla_usable,
    shipped=_shipped_mla,
)
