"""Which engine parameters published speculative cells ask for, and which explanation of dear verification they bear.

Two causes can make a verify step dearer than its kernels: (a) a cost per row through the LM head, (b) attention that
reads the KV of a sequence with several new tokens more than once. They differ in how they depend on context, so cells
at long context tell them apart. Parameters are fitted jointly to all cells of an engine, never to a case.

The cells go through the suite's harness, once as shipped and once per parameter; in between, logarithms are taken as
linear in the parameters. They nearly are: all parameters but two add time to steps.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import fit
from sim.hardware.engine_profile import EngineProfile, find_engine
from sim.validation.candidate import PARAMETERS, values_of, with_values
from sim.validation.engine_cells import SGLANG, VLLM, Cell, Selection, predict, read_cases, selected

Floats = NDArray[np.float64]

#: Where each parameter may lie, and by how much it is moved to see what it does; in the order of `PARAMETERS`.
BOUNDS = ((0.0, 3.0), (0.0, 0.05), (0.0, 2.0), (0.0, 4.0), (0.0, 30.0), (1.0, 4.0))
_MOVES = (0.2, 0.01, 0.1, 0.5, 2.0, 0.2)

#: What is fitted; the others stay as shipped.
FITTED = PARAMETERS[:-1]
#: Explanations of dear verification: what (a) and (b) may be; the other parameters are fitted in all of them.
EXPLANATIONS: dict[str, dict[str, float]] = {
    "kernels, host, launches": {"per_row_us": 0.0, "kv_reads": 1.0},
    "(a) and a cost per row": {"kv_reads": 1.0},
    "(b) and more KV reads": {"per_row_us": 0.0},
    "(a) and (b)": {},
}


class Responses(NamedTuple):
    """What an engine's cells are, and how they move with its parameters.

    Attributes:
        at: the parameters that the cells were run with, in the order of `PARAMETERS`.
        cells: each of them, as run.
        slopes: (cells, parameters) change of the logarithm per unit; 0 for parameters that were not moved.
    """

    at: Floats
    cells: tuple[Cell, ...]
    slopes: Floats

    def predicted(self, values: Floats) -> Floats:
        """Every figure at other parameters."""
        here = np.array([cell.predicted for cell in self.cells])
        return np.asarray(here * np.exp(self.slopes @ (values - self.at)))

    @property
    def measured(self) -> Floats:
        """Every figure as published."""
        return np.array([cell.measured for cell in self.cells])

    def without(self, source: str) -> "Responses":
        """The cells of all other sources."""
        keep = np.array([cell.source != source for cell in self.cells])
        return Responses(self.at, tuple(cell for cell in self.cells if cell.source != source), self.slopes[keep])


def responses(folder: Path, engine: EngineProfile, selections: Iterable[Selection], moved: Sequence[str]) -> Responses:
    """Run an engine's cells as shipped, and once with each of the `moved` parameters a little higher."""
    chosen = selected(read_cases(folder), selections)
    here = predict(chosen, engine)
    values, logs = values_of(engine), np.log([cell.predicted for cell in here])
    slopes = np.zeros((len(here), len(PARAMETERS)))
    for column, (name, by) in enumerate(zip(PARAMETERS, _MOVES, strict=True)):
        if name in moved:
            there = predict(chosen, with_values(engine, {name: values[name] + by}))
            slopes[:, column] = (np.log([cell.predicted for cell in there]) - logs) / by
    return Responses(np.array(list(values.values())), tuple(here), slopes)


class EngineFit(NamedTuple):
    """A joint fit.

    Attributes:
        values, errors: fitted values, and one sigma from the curvature, in the units of the profile; 0 for a parameter
            that was not fitted.
        rms: root mean square of the relative errors, per cent.
        by_source: relative errors, per cent.
    """

    values: dict[str, float]
    errors: dict[str, float]
    rms: float
    by_source: dict[str, list[float]]


def fit_engine(cells: Responses, fixed: Mapping[str, float]) -> EngineFit:
    """Fit all parameters that the responses know, but those in `fixed`: the host's to plain arms, others to speed-ups.

    Speed-ups are ratios to plain arms, most of them without absolute times; so the two are fitted in turn. Parameters
    that too few cells are left for stay as they are.
    """
    start = [fixed.get(name, value) for name, value in zip(PARAMETERS, cells.at.tolist(), strict=True)]
    at, sigma = np.array(start), np.zeros(len(PARAMETERS))
    plain = np.array([cell.plain for cell in cells.cells])
    loose = np.array([bool(cells.slopes[:, i].any()) and name not in fixed for i, name in enumerate(PARAMETERS)])
    host = np.array([name in _HOST for name in PARAMETERS])
    for _ in range(_TURNS):
        for keep, free in ((plain, loose & host), (~plain, loose & ~host)):
            if free.any() and keep.sum() > free.sum():
                at, sigma[free] = _stage(cells, at, keep, free)
    logs = np.log(cells.predicted(at) / cells.measured)
    values, errors = (dict(zip(PARAMETERS, row.tolist(), strict=True)) for row in (at, sigma))
    rms = 100 * float(np.sqrt(np.mean(logs**2)))
    return EngineFit(values, errors, rms, _by_source(cells.cells, 100 * np.expm1(logs)))


#: Parameters that plain arms say, and how often the two stages take turns.
_HOST, _TURNS = PARAMETERS[:2], 12


def _stage(cells: Responses, at: Floats, keep: NDArray[np.bool_], free: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The parameters with the `free` ones fitted to some cells, and their one-sigma errors."""
    bounds = [box if yes else (value, value) for box, yes, value in zip(BOUNDS, free, at.tolist(), strict=True)]
    measured = cells.measured[keep]
    found = np.array(fit(lambda x: cells.predicted(x)[keep], measured, at.tolist(), bounds, num_starts=1).parameters)
    squares = float(np.mean(np.log(cells.predicted(found)[keep] / measured) ** 2))
    jacobian = cells.slopes[keep][:, free]
    return found, np.sqrt(np.maximum(0.0, squares * np.diag(np.linalg.pinv(jacobian.T @ jacobian))))


def left_out(cells: Responses, fixed: Mapping[str, float]) -> dict[str, float]:
    """RMS error in per cent of each source, with the parameters fitted to the other sources."""
    found = {}
    for source in dict.fromkeys(cell.source for cell in cells.cells):
        values = np.array(list(fit_engine(cells.without(source), fixed).values.values()))
        errors = _by_source(cells.cells, 100 * (cells.predicted(values) / cells.measured - 1))[source]
        found[source] = float(np.sqrt(np.mean(np.square(errors))))
    return found


def _by_source(cells: Iterable[Cell], errors: Floats) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for cell, error in zip(cells, errors.tolist(), strict=True):
        found.setdefault(cell.source, []).append(error)
    return found


class KvReads(NamedTuple):
    """MagicDec: what verification costs above plain decoding, split by regression.

    Attributes:
        model: the target.
        per_token_us: per extra token verified, kernels included.
        reads, error: KV reads of a verify step in units of those of a plain step.
        points: cells.
    """

    model: str
    per_token_us: float
    reads: float
    error: float
    points: int


def magicdec(path: Path) -> list[KvReads]:
    """T_plain and T_verify over batch x context, 8 x A100: each regressed on 1, sequences and KV tokens."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["case_id"].startswith("MAGIC")]
    found = []
    for name in sorted({row["target_model"] for row in rows}):
        mine = [row for row in rows if row["target_model"] == name]
        batch = np.array([float(row["batch_or_concurrency"]) for row in mine])
        kv = batch * np.array([float(row["input_len"]) for row in mine])
        plain = np.array([float(row["plain_value"]) for row in mine])
        verify = np.array([float(_VERIFY.findall(row["notes"])[0]) for row in mine])
        design = np.column_stack([np.ones_like(batch), batch, kv])
        per_kv = np.linalg.lstsq(design, plain, rcond=None)[0][2]
        extra, left = np.linalg.lstsq(design, verify - plain, rcond=None)[:2]
        variance = float(left[0]) / (len(mine) - 3)
        error = float(np.sqrt(variance * np.linalg.inv(design.T @ design)[2, 2]) / per_kv)
        found.append(KvReads(name, 1e3 * float(extra[1]) / 2, 1 + float(extra[2] / per_kv), error, len(mine)))
    return found


_VERIFY = re.compile(r"T_verify=([\d.]+)")


def vllm_responses(folder: Path) -> Responses:
    """Of `vllm-0.10`, KV reads included."""
    return responses(folder, find_engine("vllm-0.10"), VLLM, PARAMETERS)


def sglang_responses(folder: Path) -> Responses:
    """Of `sglang`."""
    return responses(folder, find_engine("sglang"), SGLANG, FITTED)


def engine_lines(vllm: Responses, sglang: Responses, folder: Path) -> list[str]:
    """All of it as Markdown."""
    fits = [(name, fit_engine(vllm, fixed)) for name, fixed in EXPLANATIONS.items()]
    lines = [
        "| vLLM 0.10 | rms % | host ms | + ms/seq | draft pass ms | step ms | us/row | KV reads |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(name, found) for name, found in fits),
    ]
    for name, cells in (("vllm-0.10", vllm), ("sglang", sglang)):
        fixed = {"kv_reads": 1.0}
        lines += ["", *_engine(name, cells, fit_engine(cells, fixed), left_out(cells, fixed))]
    return [*lines, "", *_magicdec_lines(folder)]


def _engine(name: str, cells: Responses, found: EngineFit, out: Mapping[str, float]) -> Iterator[str]:
    pairs = ((key, found.values[key], error) for key, error in found.errors.items() if error)
    yield f"{name} fitted: rms {found.rms:.2f} %; " + ", ".join(f"{key} {p:.3g} ± {e:.1g}" for key, p, e in pairs)
    yield "as shipped, per cent: " + _cells(_by_source(cells.cells, np.array([cell.error for cell in cells.cells])))
    yield "rms left out of the fit: " + "; ".join(f"{source} {rms:.1f}" for source, rms in out.items())


def _magicdec_lines(folder: Path) -> Iterator[str]:
    for one in magicdec(folder / "published" / "published_visible.csv"):
        yield (
            f"MagicDec {one.model} ({one.points} cells): {one.per_token_us:.0f} us per extra token, "
            f"KV read {one.reads:.3f} +- {one.error:.3f} times"
        )


def _line(name: str, found: EngineFit) -> str:
    cells = [
        f"{found.values[key]:.3g} ± {found.errors[key]:.1g}" if found.errors[key] else f"{found.values[key]:.3g}"
        for key in PARAMETERS
    ]
    return f"| {name} | {found.rms:.2f} | " + " | ".join(cells) + " |"


def _cells(found: Mapping[str, list[float]]) -> str:
    return "; ".join(f"{name} {' '.join(f'{error:+.1f}' for error in values)}" for name, values in found.items())
