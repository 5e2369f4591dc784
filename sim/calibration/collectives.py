"""Fits of all-reduces, and of NCCL's all-gathers and all-to-alls."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.calibration.fit import Floats
from sim.calibration.operators import Mask, Operator, Parameter, Rows
from sim.cost.collectives import all_reduce, exchange, link_class
from sim.hardware.profile import ChosenProfile, CollectiveFit, ExchangeFit, ExchangeKind, Fit

#: Larger all-reduces never occur in a step, and use other algorithms. The logits of 2,000 rows are larger.
LARGEST_ALL_REDUCE, LARGEST_EXCHANGE = 64 * 2**20, 512 * 2**20

#: The exchanges as tables spell them.
EXCHANGES: dict[ExchangeKind, str] = {"all_gather": "all_gather", "all_to_all": "alltoall"}

_COLUMNS = ("gpu", "stack", "op", "n_gpus", "bytes", "time_us")


def _num_gpus(rows: Rows) -> int:
    return int(rows.table.numbers("n_gpus")[0])


def _no_constants(_: Rows) -> dict[str, Any]:
    return {}


def _all_reduce_us(rows: Rows, fit: CollectiveFit) -> Floats:
    table: Any = rows.table
    return np.asarray(all_reduce(1, 1.0, _num_gpus(rows), rows.gpu, fit).seconds(table.numbers("bytes")) * 1e6)


def _all_reduce_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("one_shot_us", 5.0, 1.0, 60.0),
        Parameter("one_shot_efficiency", 0.5, 0.005, 1.5),
        Parameter("one_shot_smoothness", 1.5, 1.0, 8.0),
        Parameter("two_shot_us", 12.0, 1.0, 200.0),
        Parameter("two_shot_efficiency", 0.6, 0.005, 1.5),
    )


def _of_kind(rows: Rows, op: str, largest: int) -> Mask:
    found: Mask = (rows.table.text("op") == op) & (rows.table.numbers("bytes") <= largest)
    return found & (rows.table.numbers("n_gpus") > 1)


def _all_reduce_usable(rows: Rows) -> Mask:
    """All-reduces of a serving engine, up to 64 MiB: beyond what a step sends."""
    engine: Mask = ~np.char.startswith(rows.table.text("stack"), "nccl")
    return _of_kind(rows, "all_reduce", LARGEST_ALL_REDUCE) & engine


def _shipped_all_reduce(chosen: ChosenProfile, rows: Rows) -> Fit | None:
    return chosen.collective(link_class(rows.gpu), _num_gpus(rows))


ALL_REDUCE = Operator(
    name="all-reduce",
    file="collectives.csv",
    columns=_COLUMNS,
    kinds=("n_gpus",),
    shape=("bytes",),
    fit_type=CollectiveFit,
    constants=_no_constants,
    parameters=_all_reduce_parameters,
    price_us=_all_reduce_us,
    usable=_all_reduce_usable,
    shipped=_shipped_all_reduce,
)


def _exchange_us(rows: Rows, fit: ExchangeFit) -> Floats:
    table: Any = rows.table
    return np.asarray(exchange(1, 1.0, _num_gpus(rows), rows.gpu, fit).seconds(table.numbers("bytes")) * 1e6)


def _exchange_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("quick_us", 8.0, 1.0, 60.0),
        Parameter("quick_efficiency", 0.3, 0.005, 1.0),
        Parameter("quick_smoothness", 1.2, 1.0, 8.0),
        Parameter("bulk_us", 15.0, 1.0, 300.0),
        Parameter("bulk_efficiency", 0.7, 0.005, 1.0),
    )


def _usable_exchange(op: str) -> Callable[[Rows], Mask]:
    return lambda rows: _of_kind(rows, op, LARGEST_EXCHANGE)


def _shipped_exchange(kind: ExchangeKind) -> Callable[[ChosenProfile, Rows], Fit | None]:
    return lambda chosen, rows: chosen.exchange(kind, link_class(rows.gpu), _num_gpus(rows))


def _exchange(kind: ExchangeKind, op: str) -> Operator:
    return Operator(
        name=kind.replace("_", "-"),
        file="collectives.csv",
        columns=_COLUMNS,
        kinds=("n_gpus",),
        shape=("bytes",),
        fit_type=ExchangeFit,
        constants=_no_constants,
        parameters=_exchange_parameters,
        price_us=_exchange_us,
        usable=_usable_exchange(op),
        shipped=_shipped_exchange(kind),
    )


EXCHANGE_OPERATORS = tuple(_exchange(kind, op) for kind, op in EXCHANGES.items())
