"""Groups from tables of attention: decode (one new token a sequence) and extend (prefill, verification, mixed)."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from sim.calibration.groups import Group, Parameter
from sim.calibration.kernels import Rows, Setting
from sim.calibration.plausible import DTYPES
from sim.calibration.read import Floats, Table
from sim.cost.attention import Attention, AttentionFits, bind_attention
from sim.cost.base import NO_ATTENTION, AttentionLoad
from sim.hardware.gpu import Gpu
from sim.hardware.profile import DecodeFit, ExtendFit, Fit
from sim.models.model import KV_CACHE_BYTES, Model

_DECODE = (
    Parameter("launch_us", 0.5, 60.0, 3.0),
    Parameter("kv_efficiency", 0.05, 1.1, 0.15),
    Parameter("block_us", 0.0, 20.0, 3.0),
    Parameter("doubling_us", 0.0, 9.0, 1.0),
)
_COMMON = (Parameter("launch_us", 0.0, 80.0, 4.0), Parameter("activation_efficiency", 0.05, 4.0, 0.5))
_BY_KERNEL = {
    "packed": (Parameter("compute_efficiency", 0.05, 1.1, 0.15), Parameter("sequence_us", 0.0, 10.0, 2.0)),
    "fa2": (Parameter("serial_ns_per_token", 1.0, 200.0, 5.0), Parameter("wave_us", 0.0, 20.0, 3.0)),
}
#: Tables taken kernel by kernel read KV from the L2 cache where it fits: only the fixed cost shows, or nothing.
_L2_SPILLED, _L2_NEGLIGIBLE = 1.5, 0.05


class AttentionPoint(NamedTuple):
    """One measured kernel call of one layer."""

    place: tuple[str, int]
    layout: tuple[int, int, int]
    kv_dtype: str
    decode: AttentionLoad
    extend: AttentionLoad
    time_us: float
    pure_prefill: bool = False

    @property
    def shape(self) -> str:
        """Points of one shape are held out together: the layout, and how many sequences and new tokens there are."""
        tokens = self.decode.num_tokens + self.extend.num_tokens
        return "/".join(map(str, (*self.layout, self.kv_dtype, self.decode.num_seqs + self.extend.num_seqs, tokens)))


def decode_groups(tables: Iterable[Table], setting: Setting) -> list[Group]:
    """`decode_attention.<kv format>`; calls whose KV may come from the L2 cache are left out."""
    points: dict[str, list[AttentionPoint]] = {}
    for point in attention_points(tables, setting.gpu):
        if not point.extend.num_seqs:
            points.setdefault("fp8" if point.kv_dtype == "fp8" else "bf16", []).append(point)
    groups = []
    for key, found in sorted(points.items()):
        base = setting.base.decode_attention(key)
        groups.append(_group(f"decode_attention.{key}", found, base, _DECODE, setting))
    return groups


def extend_groups(tables: Iterable[Table], setting: Setting) -> list[Group]:
    """`extend_attention`, once per kernel class that the points can tell apart (pure prefill cannot)."""
    found = [point for point in attention_points(tables, setting.gpu) if point.extend.num_seqs]
    if not found:
        return []
    base = setting.base.sections().extend_attention
    kernels: tuple[Literal["packed", "fa2"], ...] = ("packed", "fa2")
    if all(point.pure_prefill for point in found):
        kernels = (base.kernel,)
    groups = []
    for kernel in kernels:
        start = base.model_copy(update={"kernel": kernel})
        if kernel == "fa2" and not base.serial_ns_per_token:
            start = start.model_copy(update={"serial_ns_per_token": 28.0, "smoothness": 2.0})
        note = f"kernel class {kernel}, " + (
            "of these two the better" if len(kernels) > 1 else "as in the base profile"
        )
        groups.append(
            _group("extend_attention", found, start, (*_COMMON, *_BY_KERNEL[kernel]), setting)._replace(
                notes=(note,), reference=base
            )
        )
    return groups


def attention_points(tables: Iterable[Table], gpu: Gpu) -> list[AttentionPoint]:
    """The usable calls of all tables of attention."""
    points: list[AttentionPoint] = []
    for table in tables:
        if table.form == "attention_mixed":
            points += _mixed(table)
        elif table.form == "attention_decode":
            points += [point for point in _decode(table) if _clean(point, gpu)]
        elif table.form in ("attention_prefill", "attention_verify"):
            points += _extend(table)
    return points


def _clean(point: AttentionPoint, gpu: Gpu) -> bool:
    _, kv_heads, head_dim = point.layout
    kv_bytes = 2 * kv_heads * head_dim * KV_CACHE_BYTES[point.kv_dtype] * point.decode.kv_tokens_read
    return kv_bytes > _L2_SPILLED * gpu.l2 or kv_bytes < _L2_NEGLIGIBLE * gpu.l2


def _decode(table: Table) -> Iterable[AttentionPoint]:
    for i, (place, layout, time_us) in enumerate(_common(table)):
        batch, context = (int(table.numbers[name][i]) for name in ("batch", "context"))
        kv_dtype = _kv_dtype(table.texts["kv_dtype"][i])
        yield AttentionPoint(place, layout, kv_dtype, _load(batch, 1, context - 1), NO_ATTENTION, time_us)


def _extend(table: Table) -> Iterable[AttentionPoint]:
    for i, (place, layout, time_us) in enumerate(_common(table)):
        batch, new = (int(table.numbers[name][i]) for name in ("batch", "q_len"))
        prefill = table.form == "attention_prefill"
        if prefill and new == 1:
            continue  # decode without any context, which no server runs
        context = new if prefill else int(table.numbers["context"][i])
        kv_dtype = "bf16" if prefill else _kv_dtype(table.texts["kv_dtype"][i])
        load = _load(batch, new, max(0, context - new))
        loads = (load, NO_ATTENTION) if new == 1 else (NO_ATTENTION, load)
        yield AttentionPoint(place, layout, kv_dtype, *loads, time_us, prefill)


def _mixed(table: Table) -> Iterable[AttentionPoint]:
    """Taken inside an engine with the other layers running: the L2 cache is cold."""
    n = table.numbers
    for i, (place, layout, time_us) in enumerate(_common(table)):
        new, cached, others, context = (int(n[name][i]) for name in _MIXED)
        decode = _load(others, 1, context - 1) if others else NO_ATTENTION
        extend = _load(1, new, cached) if new > 1 else NO_ATTENTION
        if others or new > 1:
            yield AttentionPoint(place, layout, "bf16", decode, extend, time_us, not others and not cached)


_MIXED = ("prefill_q", "prefill_ctx", "n_decode", "decode_ctx")


def _common(table: Table) -> Iterable[tuple[tuple[str, int], tuple[int, int, int], float]]:
    n = table.numbers
    for i, row in enumerate(table.rows):
        layout = (int(n["q_heads"][i]), int(n["kv_heads"][i]), int(n["head_dim"][i]))
        yield (table.file, row), layout, float(n["time_us"][i])


def _kv_dtype(name: str) -> str:
    known = DTYPES.get(name, name)
    return known if known in KV_CACHE_BYTES else "bf16"


def _load(batch: int, new: int, cached: int) -> AttentionLoad:
    cached = max(0, cached)
    pairs = new * cached + new * (new + 1) // 2
    return AttentionLoad(batch, batch * new, batch * (cached + new), batch * pairs)


def layout_model(layout: tuple[int, int, int]) -> Model:
    """One layer with these heads: query heads, KV heads, head dimension."""
    q_heads, kv_heads, head_dim = layout
    return Model(
        name="layout", layers=1, hidden=q_heads * head_dim, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim,
        ffn=1, vocab=1, dense_layers=1, source="a measured layout",
    )  # fmt: skip


def _group(
    key: str, points: Sequence[AttentionPoint], base: Fit, parameters: tuple[Parameter, ...], setting: Setting
) -> Group:
    gpu, chosen, sections = setting.gpu, setting.base, setting.base.sections()
    models = {layout: layout_model(layout) for layout in {point.layout for point in points}}

    def predict(section: Fit, rows: Rows) -> Floats:
        bound: dict[tuple[tuple[int, int, int], str], Attention] = {}
        times = np.empty(rows.size)
        for i, row in enumerate(rows):
            point = points[row]
            attention = bound.get((point.layout, point.kv_dtype))
            if attention is None:
                decode = chosen.decode_attention("fp8" if point.kv_dtype == "fp8" else "bf16")
                fits = AttentionFits(
                    section if isinstance(section, DecodeFit) else decode,
                    section if isinstance(section, ExtendFit) else sections.extend_attention,
                    sections.mla,
                )
                attention = bind_attention(models[point.layout], 1, point.kv_dtype, gpu, fits)[0]
                bound[point.layout, point.kv_dtype] = attention
            times[i] = attention.terms(point.decode, point.extend).seconds * 1e6
        return times

    places = tuple(point.place for point in points)
    measured = np.array([point.time_us for point in points])
    return Group(key, places, measured, tuple(point.shape for point in points), predict, base, parameters)
