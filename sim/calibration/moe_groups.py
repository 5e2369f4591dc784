"""Groups from tables of fused expert blocks: one kernel per weight format."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sim.calibration.groups import Group, Parameter, read_from_cache
from sim.calibration.kernels import CACHED, Rows, Setting
from sim.calibration.linear import ROUTING_SKEW
from sim.calibration.plausible import DTYPES
from sim.calibration.read import Floats, Table
from sim.cost.formats import Format, resolve_format
from sim.cost.moe import Experts, Routing
from sim.hardware.profile import Fit, MoeFit
from sim.models.model import WEIGHT_BYTES
from sim.models.shapes import ExpertShape

_PARAMETERS = (
    Parameter("memory_efficiency", 0.05, 1.1, 0.15),
    Parameter("compute_efficiency", 0.03, 1.1, 0.15),
    Parameter("smoothness", 1.0, 6.0, 3.0),
    Parameter("launch_us", 0.0, 200.0, 15.0),
    Parameter("routing_passes", 0.0, 10.0, 2.0),
)

_SKEWED = {"power_law_1.2": Routing(popularity_skew=ROUTING_SKEW)}


class ExpertPoint(NamedTuple):
    """One measured call of a fused expert block on one GPU."""

    place: tuple[str, int]
    shape: ExpertShape
    tokens: int
    time_us: float
    distinct: float


def moe_groups(tables: Iterable[Table], setting: Setting) -> list[Group]:
    """`moe.<format>` from unsplit blocks: balanced routing reads min(E, M k) experts, skewed routing fewer.

    Of several kernels for a format the base profile's is taken, else the fastest; which one is said.
    """
    by_kernel: dict[tuple[str, str], tuple[Format, list[ExpertPoint]]] = {}
    for table in tables:
        for dtype, kernel, point in _points(table):
            if dtype in WEIGHT_BYTES:
                fmt = resolve_format(dtype, setting.gpu)
                key = "weight_only" if fmt.weight_only else fmt.key
                by_kernel.setdefault((key, kernel), (fmt, []))[1].append(point)
    groups: dict[str, list[Group]] = {}
    for (key, kernel), (fmt, found) in sorted(by_kernel.items()):
        groups.setdefault(key, []).append(_group(key, kernel, fmt, found, setting))
    return [_chosen(candidates, setting.base.moe(key).kernel) for key, candidates in groups.items()]


def _points(table: Table) -> Iterable[tuple[str, str, ExpertPoint]]:
    n, texts = table.numbers, table.texts
    for i, row in enumerate(table.rows if table.form == "moe" else ()):
        tokens, hidden, inter, experts, topk = (int(n[name][i]) for name in _SIZES)
        distinct = _distinct(texts["routing"][i], experts, topk, tokens)
        if distinct is not None and n["tp"][i] == 1 and n["ep"][i] == 1:
            shape = ExpertShape(1, experts, topk, hidden, inter, experts)
            point = ExpertPoint((table.file, row), shape, tokens, float(n["time_us"][i]), distinct)
            yield DTYPES.get(texts["dtype"][i], texts["dtype"][i]), texts["kernel"][i] or "unnamed", point


def _distinct(routing: str, experts: int, topk: int, tokens: int) -> float | None:
    """Experts read; None where it is not known how tokens choose."""
    if routing == "balanced":
        return min(experts, tokens * topk)
    return _SKEWED[routing].distinct(experts, topk, tokens) if routing in _SKEWED else None


_SIZES = ("tokens", "hidden", "inter", "experts", "topk")


def _chosen(candidates: Sequence[Group], kernel: str | None) -> Group:
    """The base profile's kernel, or the fastest."""
    same = [group for group in candidates if getattr(group.base, "kernel", None) == kernel]
    return min(same or candidates, key=_slowness)


def _slowness(group: Group) -> float:
    """Median of measured over expected time."""
    if not group.measured.size:
        return np.inf
    return float(np.median(group.measured / group.predict(group.base, np.arange(group.measured.size))))


def _group(key: str, kernel: str, fmt: Format, found: Sequence[ExpertPoint], setting: Setting) -> Group:
    bandwidth, base = setting.gpu.memory_bandwidth, setting.base.moe(key)
    shapes = ["x".join(map(str, point.shape)) for point in found]
    weights = np.array([point.distinct * point.shape.parameters_per_expert * fmt.weight_bytes for point in found])
    warm = read_from_cache(shapes, np.array([point.time_us for point in found]), 1e6 * weights / bandwidth)
    points = [point for point, cached in zip(found, warm, strict=True) if not cached]
    notes = (f"kernel {kernel}", *((CACHED.format(warm.sum()),) if warm.any() else ()))

    def predict(section: Fit, rows: Rows) -> Floats:
        if not isinstance(section, MoeFit):
            raise TypeError(section)
        bound: dict[ExpertShape, Experts] = {}
        times = np.empty(rows.size)
        for i, row in enumerate(rows):
            point = points[row]
            experts = bound.get(point.shape)
            if experts is None:
                experts = bound[point.shape] = Experts(point.shape, fmt, section, bandwidth)
            times[i] = experts.reading(point.tokens, point.distinct).seconds * 1e6
        return times

    return Group(
        f"moe.{key}",
        tuple(point.place for point in points),
        np.array([point.time_us for point in points]),
        tuple("x".join(map(str, point.shape)) for point in points),
        predict,
        base.model_copy(update={"kernel": kernel, "smoothness": base.smoothness or 1.5}),
        _PARAMETERS,
        notes,
        base,
    )
