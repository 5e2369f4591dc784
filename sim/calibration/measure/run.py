"""`specsim calibrate --measure`: time a plan on this machine and write tables that `specsim calibrate` reads."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.calibration.measure.device import Device
from sim.calibration.measure.plan import Plan, make_plan
from sim.calibration.measure.torch_device import open_device
from sim.calibration.write import write_text
from sim.catalogue import normalised
from sim.errors import CalibrationError
from sim.hardware.catalogue import find_gpu, gpu_ids
from sim.hardware.gpu import Gpu
from sim.models.catalogue import find_model
from sim.models.model import Model

Progress = Callable[[str], None]
Row = tuple[object, ...]

#: Memory that the runtime reports may differ from the catalogue by so much.
_MEMORY_TOLERANCE = 0.1


class MeasureRequest(NamedTuple):
    """What to measure.

    Attributes:
        gpu: id of this machine's GPU; None: found by its name.
        model: whose shapes.
        output: files are called after it: `out.csv` gives `out-gemm.csv` and so on.
        quick: fewer points.
    """

    gpu: str | None
    model: str
    output: Path
    quick: bool


class Sheet(NamedTuple):
    """One table to write: the name of its form, its columns, and its rows as they are timed."""

    form: str
    header: tuple[str, ...]
    rows: Iterable[Row]


def measure_here(request: MeasureRequest, progress: Progress) -> Iterator[tuple[Path, int]]:
    """Measure on this machine's GPU; yields each file as it is written, and its number of rows.

    Raises:
        CalibrationError: no PyTorch or CUDA device, a GPU not in the catalogue, or files that cannot be written.
        ScenarioError: unknown model or GPU.
    """
    model = find_model(request.model, Path.cwd())
    device = open_device()
    gpu = find_gpu(request.gpu) if request.gpu else identify(device)
    yield from measure(device, gpu, model, request, progress)


def measure(
    device: Device, gpu: Gpu, model: Model, request: MeasureRequest, progress: Progress
) -> Iterator[tuple[Path, int]]:
    """Time the plan of `model` on `device`; a table without rows is not written."""
    plan = make_plan(model, device.limits, request.quick)
    for line in plan.left_out:
        progress(f"Left out: {line}.")
    for sheet in sheets(device, gpu, model, plan):
        progress(f"Timing {sheet.form} of {model.name} on {device.name} ...")
        rows = list(sheet.rows)
        if rows:
            path = request.output.with_name(f"{request.output.stem}-{sheet.form}.csv")
            write_text(path, _csv_text(sheet.header, rows))
            yield path, len(rows)


def identify(device: Device) -> Gpu:
    """The catalogue's entry for a device: its name, multiprocessors and memory.

    Raises:
        CalibrationError: none fits, or several.
    """
    gpus = [find_gpu(gpu_id) for gpu_id in gpu_ids()]
    fits = [gpu for gpu in gpus if _is(gpu, device)]
    if len(fits) == 1:
        return fits[0]
    found = f"{device.name} ({device.sms} multiprocessors, {device.limits.memory / 2**30:.1f} GiB)"
    names = ", ".join(gpu.name.lower() for gpu in fits) or ", ".join(gpu_ids())
    raise CalibrationError(f"which GPU of the catalogue is {found}? Add --gpu with one of {names}")


def _is(gpu: Gpu, device: Device) -> bool:
    named = normalised(gpu.name.split("-")[0]) in normalised(device.name)
    same_memory = abs(device.limits.memory / gpu.memory - 1.0) < _MEMORY_TOLERANCE
    return named and same_memory and device.sms == gpu.sms


def sheets(device: Device, gpu: Gpu, model: Model, plan: Plan) -> list[Sheet]:
    """The tables of a plan; rows are timed as they are taken."""
    heads = ("q_heads", "kv_heads", "head_dim")
    common = ("gpu", "stack", "kernel")
    step = ("model", "tp", "dtype", "kv_dtype", "batch", "context", "num_draft_tokens", "time_us")
    return [
        Sheet("gemm", ("gpu", "stack", "dtype", "m", "n", "k", "time_us"), _gemm_rows(device, gpu, plan)),
        Sheet(
            "attention_decode",
            (*common, "kv_dtype", "batch", "context", *heads, "time_us"),
            _attention_rows(device, gpu, plan, verify=False),
        ),
        Sheet(
            "attention_verify",
            (*common, "kv_dtype", "batch", "q_len", "context", *heads, "time_us"),
            _attention_rows(device, gpu, plan, verify=True),
        ),
        Sheet("step", (*common, *step), _step_rows(device, gpu, model, plan)),
    ]


def _gemm_rows(device: Device, gpu: Gpu, plan: Plan) -> Iterator[Row]:
    for case in plan.gemms:
        time_us = device.time_gemm(case)
        if time_us is not None:
            yield gpu.name, device.stack, "bfloat16", case.m, case.n, case.k, _rounded(time_us)


def _attention_rows(device: Device, gpu: Gpu, plan: Plan, *, verify: bool) -> Iterator[Row]:
    for case in plan.attention:
        time_us = device.time_attention(case) if (case.q_len > 1) is verify else None
        if time_us is not None:
            new = (case.q_len,) if verify else ()
            sizes = (case.batch, *new, case.context, case.q_heads, case.kv_heads, case.head_dim)
            yield gpu.name, device.stack, device.attention_kernel, "bfloat16", *sizes, _rounded(time_us)


def _step_rows(device: Device, gpu: Gpu, model: Model, plan: Plan) -> Iterator[Row]:
    for case in plan.steps:
        time_us = device.time_step(model, case)
        if time_us is not None:
            common = (gpu.name, device.stack, device.attention_kernel, model.name, 1, "bfloat16", "bfloat16")
            yield *common, case.batch, case.context, case.num_draft_tokens, _rounded(time_us)


def _rounded(time_us: float) -> float:
    return float(f"{time_us:.5g}")


def _csv_text(header: Sequence[str], rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
