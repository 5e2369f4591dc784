"""Error tables against measured kernels: the shipped profile, refits with shapes left out, the naive roofline.

Works on any folder with tables of the form of `gpu_timings`: whatever CSV files, GPUs, formats, kernels and shapes are
there are used; nothing is known by name except the columns.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.calibration.attention import DECODE, MIXED, MIXED_DECODE, MLA, PREFILL
from sim.calibration.collectives import ALL_REDUCE, EXCHANGE_OPERATORS
from sim.calibration.fit import ErrorStats, FitResult, Floats, error_stats
from sim.calibration.layers import ELEMENTWISE, LAYER_PRODUCTS, SAMPLER, with_elementwise_sums
from sim.calibration.linear import GEMM, MOE, SPREAD_EXPERTS, USABLE_MEMORY_EFFICIENCY
from sim.calibration.operators import Operator, Rows, left_out_us
from sim.calibration.tables import Table, read_table
from sim.errors import CalibrationError, ScenarioError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import Fit, choose_profile
from sim.validation.servers import SERVER_FILE

OPERATORS = (
    GEMM, DECODE, PREFILL, MIXED_DECODE, MIXED, MLA, MOE, SPREAD_EXPERTS, ALL_REDUCE, *EXCHANGE_OPERATORS,
    LAYER_PRODUCTS, ELEMENTWISE, SAMPLER,
)  # fmt: skip

#: Columns of these tables that hold names, and those of numbers that may be 0; the others are above 0.
_TEXTS = frozenset(
    ("gpu", "stack", "dtype", "kv_dtype", "weight_dtype", "kernel", "routing", "model", "layer", "op")
)  # fmt: skip
COUNTS = ("prefill_q", "prefill_ctx", "n_decode", "decode_ctx")


class Comparison(NamedTuple):
    """One GPU, format and kernel of one op group.

    Attributes:
        operator: name of the op group.
        gpu: as in the GPU catalogue.
        kind: format, kernel and the like.
        rows_in_table: rows of the table; `rows` are the usable ones among them.
        rows: those compared.
        shipped_us, left_out_us, naive_us: predictions, row by row; None where there are none.
        shipped_all: errors of the shipped profile with the rows left aside; None where those are of another kind.
        in_sample: of a fit on all usable rows; None when they are too few.
        at_bound: its parameters that ended at a bound.
        profile: the shipped profile that was used, and whether it was fitted on this GPU.
        usable_kernel: False for a kernel that reaches a small part of the bandwidth: a fallback no server would choose.
    """

    operator: str
    gpu: str
    kind: str
    rows_in_table: int
    rows: Rows
    shipped_us: Floats | None
    left_out_us: Floats | None
    naive_us: Floats | None
    shipped_all: ErrorStats | None
    in_sample: FitResult | None
    at_bound: tuple[str, ...]
    profile: str
    usable_kernel: bool

    def errors(self, which: str) -> ErrorStats | None:
        """Errors of `shipped_us`, `left_out_us` or `naive_us`."""
        predicted = getattr(self, which)
        return None if predicted is None else error_stats(predicted, self.rows.times_us)


class Skipped(NamedTuple):
    """Rows that could not be compared, and why."""

    what: str
    rows: int
    reason: str


class Report(NamedTuple):
    """All comparisons of a folder."""

    comparisons: list[Comparison]
    skipped: list[Skipped]


def timings_folder(data: Path) -> Path:
    """`data` itself, or its `gpu_timings`.

    Raises:
        CalibrationError: no table that we know is there.
    """
    files = sorted({operator.file for operator in OPERATORS} | {SERVER_FILE})
    for folder in (data, data / "gpu_timings"):
        if any((folder / name).is_file() for name in files):
            return folder
    raise CalibrationError(f"{data}: no timing tables; expected some of {', '.join(files)}")


def compare_folder(folder: Path) -> Report:
    """Compare every table that is there.

    Raises:
        CalibrationError, ScenarioError: a table is malformed; file, line and column.
    """
    report = Report([], [])
    for operator in OPERATORS:
        path = folder / operator.file
        if path.is_file():
            sizes = [name for name in operator.columns if name not in (*_TEXTS, *COUNTS)]
            table = read_table(path, operator.columns, sizes, COUNTS)
            _compare_table(operator, with_elementwise_sums(table) if operator is ELEMENTWISE else table, report)
    return report


def _compare_table(operator: Operator, table: Table, report: Report) -> None:
    for key, own in table.groups(("gpu", *operator.kinds)):
        what = f"{operator.name}: {' '.join(key)}"
        try:
            rows = Rows(find_gpu(key[0]), own)
            usable = operator.usable(rows)
            if usable.any():
                report.comparisons.append(_compare(operator, key[1:], rows, rows.where(usable)))
        except (ScenarioError, CalibrationError) as error:
            report.skipped.append(Skipped(what, len(own), str(error)))


def _compare(operator: Operator, kind: tuple[str, ...], all_rows: Rows, rows: Rows) -> Comparison:
    found = _fit_or_none(operator, rows)
    chosen = choose_profile(rows.gpu)
    efficiency = getattr(operator.section(rows, found.parameters), "memory_efficiency", 1.0) if found else 1.0
    return Comparison(
        operator=operator.name,
        gpu=rows.gpu.name,
        kind=" ".join(kind),
        rows_in_table=len(all_rows.table),
        rows=rows,
        shipped_us=_price(operator, rows, operator.shipped(chosen, rows)),
        left_out_us=left_out_us(operator, rows, found) if found else None,
        naive_us=_price(operator, rows, operator.shipped(choose_profile(rows.gpu, "ideal"), rows)),
        shipped_all=_shipped_all(operator, all_rows),
        in_sample=found,
        at_bound=_bounds(operator, rows, found),
        profile=f"{chosen.profile.id} ({'fitted' if chosen.profile.is_measured_on(rows.gpu) else 'borrowed'})",
        usable_kernel=efficiency >= USABLE_MEMORY_EFFICIENCY,
    )


def _fit_or_none(operator: Operator, rows: Rows) -> FitResult | None:
    try:
        return operator.fit(rows)
    except CalibrationError:
        return None


def _shipped_all(operator: Operator, rows: Rows) -> ErrorStats | None:
    """Errors with the rows that were left aside, for tables whose rows all are of the kind that is priced."""
    if operator not in (GEMM, DECODE, MOE):
        return None
    if "ep" in rows.table.columns:
        rows = rows.where(rows.table.numbers("ep") == 1)
    predicted = _price(operator, rows, operator.shipped(choose_profile(rows.gpu), rows))
    return None if predicted is None else error_stats(predicted, rows.times_us)


def _bounds(operator: Operator, rows: Rows, found: FitResult | None) -> tuple[str, ...]:
    parameters = operator.parameters(rows)
    return tuple(p.name for p, hit in zip(parameters, found.at_bound, strict=True) if hit) if found else ()


def _price(operator: Operator, rows: Rows, section: Fit | None) -> Floats | None:
    return None if section is None else operator.price_us(rows, section)


def pooled(comparisons: Iterable[Comparison], which: str) -> ErrorStats | None:
    """Errors over all rows of several comparisons; those without such predictions do not count."""
    pairs = [(getattr(c, which), c.rows.times_us) for c in comparisons if getattr(c, which) is not None]
    if not pairs:
        return None
    return error_stats(np.concatenate([p for p, _ in pairs]), np.concatenate([t for _, t in pairs]))
