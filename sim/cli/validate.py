"""`specsim validate`: error tables of the model against measurements."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sim.cli.overlay import Lengths, overlay_options, run_overlay
from sim.errors import SimError
from sim.validation.acceptance import score_folder, too_small
from sim.validation.acceptance_report import render as render_acceptance
from sim.validation.acceptance_report import targets
from sim.validation.engine_fit import engine_lines
from sim.validation.folder import NothingToScoreError, has_data, nothing_to_score, what_is_needed
from sim.validation.gates import gates
from sim.validation.markdown import render
from sim.validation.mean_lengths import mean_scores, render_means
from sim.validation.overview import SuiteSummary, of_acceptance, of_physics, render_overview
from sim.validation.physics import Skipped, compare_folder, timings_folder
from sim.validation.published import read_published
from sim.validation.scores import Gate
from sim.validation.server_suite import render_server, run_server, server_groups, server_suite_gates
from sim.validation.servers import server_tables
from sim.validation.speedup import run_speedups
from sim.validation.speedup_gates import speedup_gates
from sim.validation.speedup_report import render_speedup, speedup_groups
from sim.validation.steps import compare_steps, skipped_steps
from sim.validation.suite_page import page
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

    Prints the report, or with --out the targets only. Takes about two minutes on the public tables.
    """
    text, suite = _physics(data)
    _report(text, suite, out)


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
    text, suite = _acceptance(data)
    _report(text, suite, out)


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
    text, suite = _server(data)
    _report(text, suite, out)


@validate.command()
@_data("Folder with published/*.csv, and acceptance/ with the sequences that some rows were measured with.")
@_out
def speedup(data: Path, out: Path | None) -> None:
    """Published comparisons of speculative and plain decoding, each driven as its source did.

    Prints the report, or with --out the targets only. Takes about a minute on the public rows.
    """
    text, suite = _speedup(data)
    _report(text, suite, out)


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
    suites = []
    for name in found:
        try:
            text, suite = _SUITES[name](data)
        except NothingToScoreError as error:
            click.echo(str(error), err=True)
            continue
        _report(text, suite, out / f"{name}.md")
        suites.append(suite)
    (out / "README.md").write_text(render_overview(suites), encoding="utf-8")


def _physics(data: Path) -> tuple[str, SuiteSummary]:
    folder = timings_folder(data)
    report, steps, servers = compare_folder(folder), compare_steps(folder), server_tables(folder)
    report.skipped.extend(Skipped(*one) for one in skipped_steps(folder))
    engines = _engine_section(folder.parent / "published" / "published_visible.csv")
    text = render(report, steps, servers, engines, transfers(report, folder))
    return text, of_physics(gates(report, steps, servers))


def _engine_section(published: Path) -> str:
    """Refits of the engine profiles; nothing where the folder lacks one of the cells that they were fitted to."""
    try:
        return "\n".join(engine_lines(published)) if published.is_file() else ""
    except (LookupError, SimError):
        return ""


def _acceptance(data: Path) -> tuple[str, SuiteSummary]:
    sets, means = score_folder(data), mean_scores(data)
    means = means._replace(not_run=(*too_small(data), *means.not_run))
    if not (sets or means.scores or means.not_run):
        raise nothing_to_score(data, "acceptance")
    return page(render_acceptance(sets), render_means(means)), of_acceptance(targets(sets))


def _server(data: Path) -> tuple[str, SuiteSummary]:
    if not has_data(data, "server"):
        raise nothing_to_score(data, "server")
    suite = run_server(data)
    found = SuiteSummary("server", tuple(server_suite_gates(suite)), tuple(server_groups(suite)), len(suite.not_run))
    return render_server(suite), found


def _speedup(data: Path) -> tuple[str, SuiteSummary]:
    rows = read_published(data)
    if not rows:
        raise nothing_to_score(data, "speedup")
    suite, shares = run_speedups(data), score_shares(rows, data)
    found = SuiteSummary(
        "speedup", tuple(speedup_gates(suite, shares)), tuple(speedup_groups(suite, shares)), len(suite.not_run)
    )
    return render_speedup(suite, shares), found


_SUITES: dict[str, Callable[[Path], tuple[str, SuiteSummary]]] = {
    "physics": _physics,
    "acceptance": _acceptance,
    "server": _server,
    "speedup": _speedup,
}


def _report(text: str, suite: SuiteSummary, out: Path | None) -> None:
    """Print the report, or write it and print the targets."""
    if out is None:
        click.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    for gate in suite.gates:
        click.echo(_line(gate))


def _line(gate: Gate) -> str:
    found = "-" if gate.found is None else f"{gate.found:.3g}{gate.unit}"
    return f"{gate.name}: {found} (limit {gate.limit:g}{gate.unit}): {gate.verdict}"
