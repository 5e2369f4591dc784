"""Groups from tables of kernels: matrix products, element-wise kernels, sampler."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import Floats
from sim.calibration.groups import Group, Parameter, read_from_cache
from sim.calibration.plausible import DTYPES
from sim.calibration.read import Table
from sim.cost.formats import resolve_format
from sim.cost.gemm import GemmRate, bind_gemm
from sim.cost.stack import ModelParts, Stack
from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, ElementwiseFit, Fit, GemmFit, SamplerFit
from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.models.shapes import LinearShape

Rows = NDArray[np.intp]

#: Note about rows left out.
CACHED = "{} points left out whose shapes were read from the L2 cache"

_GEMM = (
    Parameter("memory_efficiency", 0.05, 1.0, 0.15),  # nothing reads faster than the memory
    Parameter("compute_efficiency", 0.05, 1.1, 0.15),
    Parameter("launch_us", 0.0, 40.0, 4.0),
    Parameter("smoothness", 1.0, 8.0, 4.0),
    Parameter("per_1000_inputs_us", 0.0, 3.0, 0.5),
)
_FILL = Parameter("fill_inputs", 0.0, 4000.0, 1000.0)
_QUANTISE = Parameter("quantise_passes", 0.0, 20.0, 3.0)
_ELEMENTWISE = (Parameter("launch_us", 0.1, 60.0, 4.0), Parameter("traffic_fraction", 0.05, 5.0, 0.5))
_SAMPLER = (
    Parameter("launch_us", 0.0, 500.0, 20.0),
    Parameter("per_row_us", 0.0, 20.0, 0.3),
    Parameter("logit_passes", 0.0, 20.0, 2.0),
)


class Setting(NamedTuple):
    """What all groups are built with: the GPU, and the base profile on it."""

    gpu: Gpu
    base: ChosenProfile


class Product(NamedTuple):
    """One measured matrix product."""

    place: tuple[str, int]
    m: int
    n: int
    k: int
    time_us: float


def gemm_groups(tables: Iterable[Table], setting: Setting) -> list[Group]:
    """`linear.<format>` from matrix products, bare (gemm) or inside an engine (layers)."""
    products: dict[str, list[Product]] = {}
    for table in tables:
        for dtype, product in _products(table):
            fmt = resolve_format(DTYPES.get(dtype, dtype), setting.gpu)
            if fmt.fitted:
                products.setdefault(fmt.key, []).append(product)
    return [_gemm_group(key, found, setting) for key, found in sorted(products.items())]


def _products(table: Table) -> Iterable[tuple[str, Product]]:
    n, places = table.numbers, [(table.file, row) for row in table.rows]
    if table.form == "gemm":
        for i, dtype in enumerate(table.texts["dtype"]):
            m, n_out, k_in = (int(n[name][i]) for name in ("m", "n", "k"))
            yield dtype, Product(places[i], m, n_out, k_in, float(n["time_us"][i]))
    elif table.form == "layers":
        for i, layer in enumerate(table.texts["layer"]):
            shape = _layer_shape(table.texts["model"][i], int(n["tp"][i]), layer)
            if shape is not None:
                tokens = int(n["tokens"][i])
                yield "bf16", Product(places[i], tokens, shape.n_out, shape.k_in, float(n["time_us"][i]))


def _layer_shape(model: str, tp: int, layer: str) -> LinearShape | None:
    name = layer.removesuffix("_proj")
    shapes = find_model(model, Path.cwd()).linear_shapes(tp)
    return next((shape for shape in shapes if layer.endswith("_proj") and shape.name == name), None)


def _gemm_group(key: str, found: Sequence[Product], setting: Setting) -> Group:
    gpu, base = setting.gpu, setting.base.linear(key)[0]
    fmt = next(f for f in map(lambda d: resolve_format(d, gpu), ("bf16", "fp8", "nvfp4")) if f.key == key)
    streaming = np.array([1e6 * fmt.weight_bytes * p.n * p.k / gpu.memory_bandwidth for p in found])
    warm = read_from_cache([f"{p.n}x{p.k}" for p in found], np.array([p.time_us for p in found]), streaming)
    products = [product for product, cached in zip(found, warm, strict=True) if not cached]
    notes = (CACHED.format(warm.sum()),) if warm.any() else ()

    def predict(section: Fit, rows: Rows) -> Floats:
        if not isinstance(section, GemmFit):
            raise TypeError(section)
        bound: dict[tuple[int, int], GemmRate] = {}
        times = np.empty(rows.size)
        for i, row in enumerate(rows):
            p = products[row]
            rate = bound.get((p.n, p.k))
            if rate is None:
                shape = LinearShape("calibrated", p.n, p.k, 1)
                rate = bound[p.n, p.k] = bind_gemm(shape, fmt, section, gpu.memory_bandwidth)
            times[i] = rate.terms(p.m).seconds * 1e6
        return times

    quantised = fmt.activation_bytes < 2.0
    return Group(
        f"linear.{key}",
        tuple(p.place for p in products),
        np.array([p.time_us for p in products]),
        tuple(f"{p.n}x{p.k}" for p in products),
        predict,
        base if base.smoothness is not None else base.model_copy(update={"smoothness": 3.0}),
        (*_GEMM, *((_QUANTISE,) if quantised else ()), _FILL),
        notes,
        base,
    )


def small_kernel_groups(tables: Iterable[Table], setting: Setting) -> list[Group]:
    """`elementwise` and `sampler` from tables of layers."""
    found = [table for table in tables if table.form == "layers"]
    sections = setting.base.sections()
    elementwise = [point for table in found for point in _elementwise(table)]
    sampled = [point for table in found for point in _layer_points(table, "sampler")]
    groups = []
    if elementwise:
        groups.append(_layer_group("elementwise", elementwise, sections.elementwise, _ELEMENTWISE, setting))
    if sampled:
        groups.append(_layer_group("sampler", sampled, sections.sampler, _SAMPLER, setting))
    return groups


class LayerPoint(NamedTuple):
    """Time of a kind of layer for `tokens` rows of a model."""

    place: tuple[str, int]
    model: str
    tp: int
    tokens: int
    time_us: float


def _layer_points(table: Table, layer: str) -> list[LayerPoint]:
    n = table.numbers
    return [
        LayerPoint((table.file, row), table.texts["model"][i], int(n["tp"][i]), int(n["tokens"][i]), n["time_us"][i])
        for i, row in enumerate(table.rows)
        if table.texts["layer"][i] == layer
    ]


def _elementwise(table: Table) -> list[LayerPoint]:
    """Two norms, the rotary embedding and the activation of a layer, where all three were measured."""
    rotary, activation = (_by_size(table, name) for name in ("rotary_emb", "act_fn"))
    points = []
    for norm in _layer_points(table, "layernorm"):
        size = (norm.model, norm.tp, norm.tokens)
        if size in rotary and size in activation:
            points.append(norm._replace(time_us=2.0 * norm.time_us + rotary[size] + activation[size]))
    return points


def _by_size(table: Table, layer: str) -> dict[tuple[str, int, int], float]:
    return {(p.model, p.tp, p.tokens): p.time_us for p in _layer_points(table, layer)}


def _layer_group(
    key: str, points: Sequence[LayerPoint], base: Fit, parameters: tuple[Parameter, ...], setting: Setting
) -> Group:
    parts = {(p.model, p.tp): model_parts(find_model(p.model, Path.cwd()), p.tp, setting) for p in points}

    def predict(section: Fit, rows: Rows) -> Floats:
        price: dict[tuple[str, int], Callable[[int], float]] = {}
        for name, part in parts.items():
            if isinstance(section, ElementwiseFit):
                price[name] = part.elementwise._replace(fit=section, layers=1).seconds
            elif isinstance(section, SamplerFit):
                price[name] = part.sampler._replace(fit=section).seconds
        return np.array([1e6 * price[points[i].model, points[i].tp](points[i].tokens) for i in rows])

    shapes = tuple(f"{p.model}/{p.tp}/{p.tokens}" for p in points)
    measured = np.array([p.time_us for p in points])
    return Group(key, tuple(p.place for p in points), measured, shapes, predict, base, parameters)


def model_parts(model: Model, tp: int, setting: Setting) -> ModelParts:
    """The op groups of a model in 16 bits with the base profile."""
    return Stack(setting.gpu, setting.base, tp, "bf16", "bf16").bind(model)
