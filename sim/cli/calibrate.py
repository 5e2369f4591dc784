"""`specsim calibrate`: fit a profile to measured times, or measure them on this machine's GPU."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from sim.calibration.calibrate import Calibration, Request
from sim.calibration.calibrate import calibrate as fit_profile
from sim.calibration.fit import ErrorStats
from sim.calibration.groups import Fitted
from sim.calibration.measure.run import MeasureRequest, measure_here
from sim.calibration.write import finished, profile_yaml, write_text
from sim.hardware.catalogue import find_gpu

_HOLD_OUT = 0.2
_PATH = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("files", nargs=-1, type=_PATH)
@click.option("--gpu", help="GPU that the times were taken on; rows of other GPUs are left out.")
@click.option("--dtype", type=click.Choice(["bf16", "fp8", "nvfp4", "mxfp4"]), help="Only this weight format.")
@click.option("-o", "--output", type=_PATH, help="The profile to write; with --measure, the CSV files' common name.")
@click.option("--hold-out", type=click.FloatRange(0, 0.9), default=_HOLD_OUT, show_default=True, help="Share left out.")
@click.option("--base", default="auto", show_default=True, help="Profile to start from: an id or a file.")
@click.option("--model", help="Model of the steps in a `vllm bench forward` JSON, or whose shapes to measure.")
@click.option("--date", help="Date of the measurements, for the provenance; left out by default.")
@click.option("--measure", is_flag=True, help="Time kernels on this machine (needs CUDA and PyTorch).")
@click.option("--quick", is_flag=True, help="With --measure: a tenth of the points.")
def calibrate(
    files: tuple[Path, ...],
    gpu: str | None,
    dtype: str | None,
    output: Path | None,
    hold_out: float,
    base: str,
    model: str | None,
    date: str | None,
    measure: bool,
    quick: bool,
) -> None:
    """Fit a cost-model profile to measured FILES: CSV tables, or the JSON of `vllm bench forward`.

    Use the result with `cost_model: {kind: roofline, profile: FILE}`.
    """
    if measure:
        stated = {"--dtype": dtype, "--date": date, "--base": base != "auto", "--hold-out": hold_out != _HOLD_OUT}
        _refuse(name for name, value in stated.items() if value)
        _measure(files, MeasureRequest(gpu, model or "llama-3.1-8b", output or Path("measured.csv"), quick))
        return
    if not files or gpu is None or quick:
        raise click.UsageError("give FILES and --gpu, or --measure" if not quick else "--quick goes with --measure")
    result = fit_profile(Request(files, gpu, dtype, hold_out, base, model))
    for line in _report(result):
        click.echo(line)
    if output is None:
        click.echo("Nothing written: add -o profile.yaml.", err=True)
        return
    profile = finished(result.profile, output.stem, find_gpu(gpu), result.sources, result.base, date)
    write_text(output, profile_yaml(profile))
    click.echo(f"Wrote {output}.", err=True)


def _refuse(names: Iterable[str]) -> None:
    found = ", ".join(names)
    if found:
        raise click.UsageError(f"no effect together with --measure: {found}")


def _measure(files: tuple[Path, ...], request: MeasureRequest) -> None:
    if files:
        raise click.UsageError("--measure writes files and reads none")
    for path, rows in measure_here(request, lambda text: click.echo(text, err=True)):
        click.echo(f"Wrote {path}: {rows} rows.", err=True)


_HEAD = ("op group", "points", "MAPE %", "p95", "worst", "held out", "MAPE %", "p95", "worst", "base MAPE %")


def _report(result: Calibration) -> list[str]:
    rows = [_HEAD, *(_row(one) for one in result.fitted)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = ["  ".join(_padded(row, widths)).rstrip() for row in rows]
    lines.append(f"Base profile: {result.base}; its error is that on the points held out.")
    for one in result.fitted:
        lines += [f"{one.group.key}: {note}" for note in one.group.notes]
        if one.not_identified:
            names = ", ".join(one.not_identified)
            lines.append(f"{one.group.key}: not identified by these points, base value kept: {names}")
    return [*lines, *result.notes]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Names to the left, figures to the right."""
    return [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _row(one: Fitted) -> tuple[str, ...]:
    outside = ("0", "-", "-", "-") if one.held_out is None else _figures(one.held_out)
    return (one.group.key, *_figures(one.in_sample), *outside, f"{one.base_error.mape:.1f}")


def _figures(stats: ErrorStats) -> tuple[str, ...]:
    return (str(stats.points), f"{stats.mape:.1f}", f"{stats.p95:.1f}", f"{stats.worst:.1f}")
