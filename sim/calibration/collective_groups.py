"""Groups from tables of collectives: all-reduces of an engine, and the exchanges of NCCL."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.collectives import EXCHANGES, LARGEST_ALL_REDUCE, LARGEST_EXCHANGE
from sim.calibration.fit import Floats
from sim.calibration.groups import Group, Parameter
from sim.calibration.kernels import Setting
from sim.calibration.read import Table
from sim.cost.collectives import Collective, all_reduce, exchange, link_class
from sim.hardware.profile import CollectiveFit, ExchangeFit, ExchangeKind, Fit

_ONE_SHOT = (
    Parameter("one_shot_us", 0.5, 100.0, 3.0),
    Parameter("one_shot_efficiency", 0.005, 1.5, 0.15),
    Parameter("one_shot_smoothness", 1.0, 8.0, 3.0),
)
_TWO_SHOT = (Parameter("two_shot_us", 0.5, 200.0, 6.0), Parameter("two_shot_efficiency", 0.005, 1.5, 0.15))
_EXCHANGE = (
    Parameter("bulk_us", 0.5, 300.0, 6.0),
    Parameter("bulk_efficiency", 0.005, 1.0, 0.15),
    Parameter("quick_us", 0.5, 100.0, 3.0),
    Parameter("quick_efficiency", 0.005, 1.0, 0.15),
    Parameter("quick_smoothness", 1.0, 8.0, 3.0),
)


class _Point(NamedTuple):
    """One measured collective."""

    place: tuple[str, int]
    stack: str
    num_bytes: int
    time_us: float


def collective_groups(tables: Iterable[Table], setting: Setting) -> list[Group]:
    """`collectives.<link>.<n>` from all-reduces, those of the engine where there are any, and `exchanges.<kind>...`."""
    found = list(tables)
    groups = [_all_reduces(n, points, setting) for n, points in _points(found, "all_reduce", LARGEST_ALL_REDUCE)]
    for kind, op in EXCHANGES.items():
        for n, points in _points(found, op, LARGEST_EXCHANGE):
            groups.append(_exchanges(kind, n, points, setting))
    return groups


def _points(tables: Iterable[Table], op: str, largest: int) -> Iterator[tuple[int, list[_Point]]]:
    """The points of one collective by number of GPUs."""
    by_size: dict[int, list[_Point]] = {}
    for table in tables:
        n = table.numbers
        for i, row in enumerate(table.rows if table.form == "collectives" else ()):
            if table.texts["op"][i] == op and n["bytes"][i] <= largest and n["n_gpus"][i] > 1:
                point = _Point((table.file, row), table.texts["stack"][i], int(n["bytes"][i]), float(n["time_us"][i]))
                by_size.setdefault(int(n["n_gpus"][i]), []).append(point)
    yield from sorted(by_size.items())


def _all_reduces(num_gpus: int, found: Sequence[_Point], setting: Setting) -> Group:
    points, gpu = [point for point in found if not point.stack.startswith("nccl")] or found, setting.gpu
    link = link_class(gpu)
    base = setting.base.collective(link, num_gpus)
    two_shot = base.two_shot_us is not None or (link == "nvlink" and num_gpus > 2)
    filled = {"one_shot_us": base.one_shot_us or 5.0, "two_shot_us": (base.two_shot_us or 12.0) if two_shot else None}

    def bind(section: Fit) -> Collective:
        if not isinstance(section, CollectiveFit):
            raise TypeError(section)
        return all_reduce(1, 1.0, num_gpus, gpu, section)

    start, parameters = base.model_copy(update=filled), (*_ONE_SHOT, *(_TWO_SHOT if two_shot else ()))
    return _group(f"collectives.{link}.{num_gpus}", points, bind, start, parameters, base)


def _exchanges(kind: ExchangeKind, num_gpus: int, points: Sequence[_Point], setting: Setting) -> Group:
    gpu, link = setting.gpu, link_class(setting.gpu)
    base = setting.base.exchange(kind, link, num_gpus)

    def bind(section: Fit) -> Collective:
        if not isinstance(section, ExchangeFit):
            raise TypeError(section)
        return exchange(1, 1.0, num_gpus, gpu, section)

    start = base if base.quick_us is not None else base.model_copy(update={"quick_us": 8.0})
    return _group(f"exchanges.{kind}.{link}.{num_gpus}", points, bind, start, _EXCHANGE, base)


def _group(
    key: str,
    points: Sequence[_Point],
    bind: Callable[[Fit], Collective],
    start: Fit,
    parameters: tuple[Parameter, ...],
    base: Fit,
) -> Group:
    def predict(section: Fit, rows: NDArray[np.intp]) -> Floats:
        bound = bind(section)
        return np.array([1e6 * bound.seconds(points[i].num_bytes) for i in rows])

    return Group(
        key,
        tuple(point.place for point in points),
        np.array([point.time_us for point in points]),
        tuple(f"{point.num_bytes:g}" for point in points),
        predict,
        start,
        parameters,
        reference=base,
    )
