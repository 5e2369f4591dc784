"""Which engine parameters published speculative cells ask for, and which explanation of dear verification they bear.

Two causes can make a verify step dearer than its kernels: (a) a cost per row through the LM head, (b) attention that
reads the KV of a sequence with several new tokens more than once. They differ in how they depend on context, so cells
at long context tell them apart. Parameters are fitted jointly to all cells of an engine, never to a case.
"""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import fit
from sim.hardware.engine_profile import find_engine
from sim.validation.engine_cells import (
    Arm,
    Cells,
    Lockstep,
    Parameters,
    beginning,
    chain_speedups,
    plain_times,
    read_rows,
    shipped,
    step_ratios,
    step_times,
)

Floats = NDArray[np.float64]

#: Where each parameter may lie.
BOUNDS = ((0.0, 3.0), (0.0, 0.05), (0.0, 2.0), (0.0, 3.0), (0.0, 30.0), (1.0, 4.0), (400.0, 6000.0))

#: Explanations: the parameters that are fitted; the others stay at no cost, one KV read.
EXPLANATIONS = {
    "kernels, host, launches": ("host_base_ms", "host_per_request_ms", "draft_pass_ms"),
    "(a) and a cost per row": ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "per_row_us"),
    "(b) and more KV reads": ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "kv_reads"),
    "(a) and (b)": ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "per_row_us", "kv_reads"),
}
SGLANG = ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "speculative_step_ms", "per_row_us")


def vllm_cells(path: Path) -> list[Cells]:
    """Cells of vLLM of mid-2025 on one H100: SpecDecode-Bench (8B models) and issue 20780."""
    rows = read_rows(path)
    eagle3, eagle = Arm("llama-3.1-8b", "eagle3", "h100-sxm"), Arm("llama-3.1-8b", "eagle", "h100-sxm")
    qwen, thinking = Arm("qwen3-8b", "eagle3", "h100-sxm"), "SDB-F3-Qwen3-8B-Thinking-GSM8K-EAGLE-3"
    start, gsm8k, coder = "SDB-F1-Llama-3.1-8B", Lockstep(94, 166), Lockstep(171, 262)
    return [
        chain_speedups("GSM8K EAGLE-3", beginning(rows, f"{start}-GSM8K-EAGLE-3-"), eagle3, gsm8k),
        chain_speedups("GSM8K EAGLE", beginning(rows, f"{start}-GSM8K-EAGLE-b"), eagle, gsm8k),
        chain_speedups("InstructCoder EAGLE-3", beginning(rows, f"{start}-InstructCoder-EAGLE-3-"), eagle3, coder),
        chain_speedups("InstructCoder EAGLE", beginning(rows, f"{start}-InstructCoder-EAGLE-b"), eagle, coder),
        plain_times("Qwen3-8B thinking, plain ms", beginning(rows, thinking), qwen, 94, 0.0),
        chain_speedups("Qwen3-8B thinking EAGLE-3", beginning(rows, thinking), qwen, None),
        step_times("issue 20780, ms over K", beginning(rows, "VLLM20780"), eagle, 250),
    ]


def sglang_cells(path: Path) -> list[Cells]:
    """Cells of SGLang of late 2025: SpecForge (H200), SpecDecode-Bench chain (H100), plain servers of DFlash (B200)."""
    rows, arms = read_rows(path), {gpu: Arm("llama-3.1-8b", "eagle3", gpu) for gpu in ("h200-sxm", "b200-sxm")}
    chains = beginning(rows, "SPECBUNDLE", "topk 1 ")
    plain = list({row.plain: row for row in chains}.values())
    qwen = Lockstep(94, 166)
    return [
        plain_times("H200 plain ms", plain, arms["h200-sxm"], 150, 200.0),
        step_ratios("H200 r over K", chains, arms["h200-sxm"], 250),
        chain_speedups("H100 chain", beginning(rows, "SDB-F2", "chain"), Arm("qwen3-8b", "eagle3", "h100-sxm"), qwen),
        plain_times("B200 plain ms", beginning(rows, "DFLASH-T5-GSM8K-DFlash"), arms["b200-sxm"], 94, 166.0),
        plain_times("B200 Qwen3-8B", beginning(rows, "DFLASH-T3"), Arm("qwen3-8b", "eagle3", "b200-sxm"), 94, 400.0),
    ]


class EngineFit(NamedTuple):
    """A joint fit.

    Attributes:
        name: the explanation.
        parameters, errors: fitted values, and one sigma from the curvature, in the units of `Parameters`; the error of
            a parameter that was not fitted is 0.
        rms: root mean square of the relative errors, per cent.
        cells: relative errors by source, per cent.
    """

    name: str
    parameters: Parameters
    errors: Parameters
    rms: float
    cells: dict[str, list[float]]


def fit_engine(name: str, cells: Sequence[Cells], free: Sequence[str], start: Parameters) -> EngineFit:
    """Fit the `free` parameters to all cells; the others keep their value in `start`."""
    measured = np.array([value for group in cells for value in group.measured])

    def model(x: Floats) -> Floats:
        at = Parameters(*x.tolist())
        return np.array([value for group in cells for value in group.predict(at)])

    loose = [name in (*free, "output_tokens") for name in Parameters._fields]
    bounds = [box if yes else (value, value) for box, yes, value in zip(BOUNDS, loose, start, strict=True)]
    found = fit(model, measured, start, bounds, num_starts=1)
    at = np.array(found.parameters)
    logs = np.log(model(at) / measured)
    rms = float(np.sqrt(np.mean(logs**2)))
    return EngineFit(name, Parameters(*at.tolist()), _errors(model, at, loose, rms), 100 * rms, errors(cells, at))


def _errors(model: Callable[[Floats], Floats], at: Floats, free: Sequence[bool], rms: float) -> Parameters:
    """One sigma from the curvature at the optimum, residuals taken as independent."""
    index = [i for i, yes in enumerate(free) if yes]
    columns = []
    for i in index:
        step = max(1e-3 * abs(at[i]), 1e-4)
        columns.append((np.log(model(at + step * np.eye(len(at))[i])) - np.log(model(at))) / step)
    jacobian = np.array(columns).T
    covariance = rms**2 * np.linalg.pinv(jacobian.T @ jacobian)
    sigma = np.zeros(len(at))
    sigma[index] = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    return Parameters(*sigma.tolist())


def errors(cells: Sequence[Cells], at: Floats | Parameters) -> dict[str, list[float]]:
    """Relative errors by source, per cent."""
    x = Parameters(*(float(value) for value in at))
    return {g.name: [100 * (p / m - 1) for p, m in zip(g.predict(x), g.measured, strict=True)] for g in cells}


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


def explanations(path: Path) -> list[EngineFit]:
    """Every explanation fitted to the vLLM cells."""
    cells, nothing = vllm_cells(path), Parameters(0.8, 0.005, 0.5, 0.0, 0.0, 1.0)
    fits = []
    for name, free in EXPLANATIONS.items():
        start = nothing._replace(
            **{key: value for key, value in (("per_row_us", 3.0), ("kv_reads", 1.2)) if key in free}
        )
        fits.append(fit_engine(name, cells, free, start))
    return fits


def left_out(cells: Sequence[Cells], free: Sequence[str], start: Parameters) -> dict[str, float]:
    """RMS error in per cent of each source, with the parameters fitted to the other sources.

    Sources at the free length of outputs are not left out: nothing else says it.
    """
    found = {}
    for group in cells:
        if "thinking" not in group.name:
            others = [other for other in cells if other is not group]
            at = fit_engine(group.name, others, free, start).parameters
            found[group.name] = float(np.sqrt(np.mean(np.square(errors([group], at)[group.name]))))
    return found


def fit_sglang(path: Path) -> EngineFit:
    """The SGLang parameters."""
    return fit_engine("sglang", sglang_cells(path), SGLANG, Parameters(0.5, 0.02, 0.3, 0.8, 8.0, 1.0))


def engine_lines(path: Path) -> list[str]:
    """All of it as Markdown. `path` is a `published_visible.csv`."""
    fits = explanations(path)
    lines = [
        "| vLLM 0.10 | rms % | host ms | + ms/seq | draft pass ms | us/row | KV reads |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(found) for found in fits]
    lines += ["", "Errors by source, per cent, shipped profiles:"]
    tokens = fits[1].parameters.output_tokens
    for name, cells in (("vllm", vllm_cells(path)), ("vllm-0.10", vllm_cells(path)), ("sglang", sglang_cells(path))):
        lines.append(f"- {name}: " + _cells(errors(cells, shipped(find_engine(name), tokens))))
    out = left_out(vllm_cells(path), EXPLANATIONS["(a) and a cost per row"], fits[1].parameters)
    lines += ["", "rms left out of the fit (a): " + "; ".join(f"{name} {rms:.1f}" for name, rms in out.items())]
    lines += ["", f"SGLang fitted: {_values(fit_sglang(path))}", ""]
    for one in magicdec(path):
        lines.append(
            f"MagicDec {one.model} ({one.points} cells): {one.per_token_us:.0f} us per extra token, "
            f"KV read {one.reads:.3f} +- {one.error:.3f} times"
        )
    return lines


def _line(found: EngineFit) -> str:
    p, e = found.parameters, found.errors
    names = ("host_base_ms", "host_per_request_ms", "draft_pass_ms", "per_row_us", "kv_reads")
    values = [f"{getattr(p, n):.3g} ± {getattr(e, n):.1g}" if getattr(e, n) else f"{getattr(p, n):.3g}" for n in names]
    return f"| {found.name} | {found.rms:.2f} | " + " | ".join(values) + " |"


def _values(found: EngineFit) -> str:
    pairs = zip(Parameters._fields, found.parameters, found.errors, strict=True)
    return f"rms {found.rms:.2f} %; " + ", ".join(f"{name} {p:.3g} ± {e:.1g}" for name, p, e in pairs if e)


def _cells(found: dict[str, list[float]]) -> str:
    return "; ".join(f"{name} {' '.join(f'{error:+.1f}' for error in values)}" for name, values in found.items())
