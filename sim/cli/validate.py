"""`specsim validate`: error tables of the model against measurements."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import click

from sim.cli.overlay import Lengths, overlay_options, run_overlay
from sim.report.validation.acceptance import acceptance_pictures
from sim.report.validation.canvas import Picture, can_draw, write_pictures
from sim.report.validation.overview import overview_pictures
from sim.report.validation.physics import physics_pictures
from sim.report.validation.server import server_pictures
from sim.report.validation.speedup import speedup_pictures
from sim.validation.acceptance import score_folder, too_small
from sim.validation.acceptance_report import render as render_acceptance
from sim.validation.case_files import server_files, speedup_files, write_case_files
from sim.validation.folder import NothingToScoreError, has_data, nothing_to_score, what_is_needed
from sim.validation.markdown import render
from sim.validation.mean_lengths import mean_scores, render_means
from sim.validation.overview import SuiteSummary, of_acceptance, of_physics, of_server, of_speedup, render_overview
from sim.validation.physics import Skipped, compare_folder, timings_folder
from sim.validation.published import read_published
from sim.validation.scores import Gate
from sim.validation.server_suite import render_server, run_server
from sim.validation.servers import server_tables
from sim.validation.speedup import run_speedups
from sim.validation.speedup_report import render_speedup
from sim.validation.steps import compare_steps, skipped_steps
from sim.validation.suite_page import Pictures, page
from sim.validation.time_shares import score_shares
from sim.validation.transfer import transfers

Command = Callable[..., Any]


def _data(text: str) -> Callable[[Command], Command]:
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--data", type=folder, callback=_required, help=f"{text}  [required]")


def _required(_ctx: click.Context, _option: click.Parameter, folder: Path | None) -> Path:
    """Measurements are not shipped: say what is needed and where it is."""
    if folder is None:
        raise click.UsageError(f"--data DIR is missing. {what_is_needed()}")
    return folder


_out = click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write the Markdown report here."
)


@click.group(invoke_without_command=True)
@overlay_options
@click.pass_context
def validate(
    ctx: click.Context,
    measured: tuple[str, ...],
    scenario: str | None,
    overrides: tuple[str, ...],
    lengths: Lengths,
    replicates: int | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Error tables of models against measurements; with --measured, of a scenario against your own load tests."""
    if measured and ctx.invoked_subcommand:
        raise click.UsageError(f"--measured stands alone, without {ctx.invoked_subcommand}")
    if measured:
        run_overlay(measured, scenario, overrides, lengths, replicates, jobs, as_json)
    elif ctx.invoked_subcommand is None:
        raise click.UsageError("against what? name a command, or give --measured ARM=FILES and --scenario")


@validate.command()
@_data(
    "Folder with timing tables (gemm.csv, attention_decode.csv, moe.csv, ... or gpu_timings/ with them); "
    "docs/background/cost-model.md says where the public ones come from."
)
@_out
def physics(data: Path, out: Path | None) -> None:
    """Kernel, step and server times: the shipped profiles, refits with shapes left out, and the naive roofline.

    Prints the report, or with --out the targets only. Takes about half a minute on the public tables.
    """
    _alone(_physics, data, out)


@validate.command()
@_data(
    "Folder with recorded sequences NAME_accepted.csv.gz (or acceptance/ with them), as sequence_replay reads; "
    "NAME_streams_relabelled.csv.gz beside them are replayed."
)
@_out
def acceptance(data: Path, out: Path | None) -> None:
    """Tokens per step, spread and correlation in time against recordings, fitted on one half and scored on the other.

    Prints the report, or with --out the targets only. Takes about a minute per recording.
    """
    _alone(_acceptance, data, out)


@validate.command()
@_data(
    "Folder with recorded runs (recorded_vllm/NAME_requests.csv, NAME_engine.json, NAME_seconds.csv) and whole servers "
    "(gpu_timings/e2e_tpot.csv)."
)
@_out
def server(data: Path, out: Path | None) -> None:
    """Recorded runs replayed and whole servers at fixed concurrency: latencies, percentiles, state by the second.

    Prints the report, or with --out the targets only. Takes about two minutes on the public data.
    """
    _alone(_server, data, out)


@validate.command()
@_data("Folder with published/*.csv, and acceptance/ with the sequences that some rows were measured with.")
@_out
def speedup(data: Path, out: Path | None) -> None:
    """Published comparisons of speculative and plain decoding, each driven as its source did.

    Prints the report, or with --out the targets only. Takes about a minute on the public rows.
    """
    _alone(_speedup, data, out)


@validate.command(name="all")
@_data("Folder with gpu_timings/, acceptance/, recorded_vllm/ and published/, or some of them.")
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results/validation"),
    show_default=True,
    help="Folder for a page per suite and an overview, README.md.",
)
def everything(data: Path, out: Path) -> None:
    """Every suite that the folder has data for; a page each, and an overview."""
    found = [name for name in _SUITES if has_data(data, name)]
    if not found:
        raise click.BadParameter(f"{data} has nothing to score. {what_is_needed()}")
    _make_writable(out)
    suites = []
    for name in found:
        try:
            suite = _SUITES[name](data)
        except NothingToScoreError as error:
            click.echo(str(error), err=True)
            continue
        _report(suite, out / f"{name}.md")
        suites.append(suite.summary)
    _write(out / "README.md", partial(render_overview, suites), lambda: overview_pictures(suites))
    _say_without_pictures()


@validate.command()
@_data("Folder with published/, recorded_vllm/ and gpu_timings/e2e_tpot.csv, or some of them.")
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for speedup/CASE.yaml and server/CASE.yaml.",
)
def cases(data: Path, out: Path) -> None:
    """Every case of `speedup` and `server` as a scenario file, with what was measured in its comments.

    Any command takes these files: `specsim explain`, `run`, `tune-k`. Takes about a minute on the public rows, since
    acceptance that a source does not state is solved from its smallest load.
    """
    if not (has_data(data, "speedup") or has_data(data, "server")):
        raise click.BadParameter(f"{data} has no cases. {what_is_needed()}")
    _make_writable(out)
    count = 0
    if has_data(data, "speedup"):
        count += write_case_files(speedup_files(run_speedups(data)), out)
    if has_data(data, "server"):
        count += write_case_files(server_files(data), out)
    click.echo(f"Wrote {count} scenarios to {out}")


class _Suite(NamedTuple):
    """A suite that was run: its summary, its page with pictures or without, and what draws them."""

    summary: SuiteSummary
    render: Callable[[Pictures], str]
    draw: Callable[[], Iterator[Picture]]


def _physics(data: Path) -> _Suite:
    folder = timings_folder(data)
    report, steps, servers = compare_folder(folder), compare_steps(folder), server_tables(folder)
    report.skipped.extend(Skipped(*one) for one in skipped_steps(folder))
    unknown = transfers(report, folder)
    return _Suite(
        of_physics(report, steps, servers),
        lambda pictures: render(report, steps, servers, unknown, pictures),
        lambda: physics_pictures(report, steps, unknown),
    )


def _acceptance(data: Path) -> _Suite:
    sets, means = score_folder(data), mean_scores(data)
    means = means._replace(not_run=(*too_small(data), *means.not_run))
    if not (sets or means.scores or means.not_run):
        raise nothing_to_score(data, "acceptance")
    return _Suite(
        of_acceptance(sets),
        lambda pictures: page(render_acceptance(sets, pictures), render_means(means)),
        lambda: acceptance_pictures(sets),
    )


def _server(data: Path) -> _Suite:
    if not has_data(data, "server"):
        raise nothing_to_score(data, "server")
    suite = run_server(data)
    return _Suite(of_server(suite), partial(render_server, suite), lambda: server_pictures(suite))


def _speedup(data: Path) -> _Suite:
    rows = read_published(data)
    if not rows:
        raise nothing_to_score(data, "speedup")
    suite, shares = run_speedups(data), score_shares(rows, data)
    return _Suite(
        of_speedup(suite, shares), partial(render_speedup, suite, shares), lambda: speedup_pictures(suite, shares)
    )


_SUITES: dict[str, Callable[[Path], _Suite]] = {
    "physics": _physics,
    "acceptance": _acceptance,
    "server": _server,
    "speedup": _speedup,
}


def _alone(run: Callable[[Path], _Suite], data: Path, out: Path | None) -> None:
    """The report of one suite."""
    if out is not None:
        _make_writable(out.parent)
    _report(run(data), out)
    if out is not None:
        _say_without_pictures()


def _report(suite: _Suite, out: Path | None) -> None:
    """Print the report, or write it with its pictures and print the targets."""
    if out is None:
        click.echo(suite.render({}), nl=False)
        return
    _write(out, suite.render, suite.draw)
    for gate in suite.summary.gates:
        click.echo(_line(gate))


def _write(page: Path, render_page: Callable[[Pictures], str], draw: Callable[[], Iterator[Picture]]) -> None:
    """A page, and its pictures in a folder beside it; without them where matplotlib is missing."""
    pictures = write_pictures(draw(), page.parent) if can_draw() else {}
    page.write_text(render_page(pictures), encoding="utf-8")


def _make_writable(folder: Path) -> None:
    """Find out before minutes are spent whether pages can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.BadParameter(f"{folder}: cannot be written to ({error.strerror})", param_hint="--out") from error


def _say_without_pictures() -> None:
    if not can_draw():
        click.echo("Pages have no pictures: pip install 'specsim[plots]'", err=True)


def _line(gate: Gate) -> str:
    found = "-" if gate.found is None else f"{gate.found:.3g}{gate.unit}"
    return f"{gate.name}: {found} (limit {gate.limit:g}{gate.unit}): {gate.verdict}"
