"""`specsim validate`: error tables of the model against measurements."""

from pathlib import Path

import click

from sim.cli.overlay import Lengths, overlay_options, run_overlay
from sim.validation.acceptance import score_folder
from sim.validation.acceptance_report import render as render_acceptance
from sim.validation.acceptance_report import targets
from sim.validation.engine_fit import engine_lines
from sim.validation.gates import gates
from sim.validation.markdown import render
from sim.validation.physics import compare_folder, timings_folder
from sim.validation.servers import server_tables
from sim.validation.steps import compare_steps
from sim.validation.transfer import transfers


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
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with timing tables (gemm.csv, attention_decode.csv, moe.csv, ... or gpu_timings/ with them); "
    "docs/background/cost-model.md says where the public ones come from.",
)
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write the Markdown report here.")
def physics(data: Path, out: Path | None) -> None:
    """Kernel, step and server times: the shipped profiles, refits with shapes left out, and the naive roofline.

    Prints the report, or with --out the targets only. Takes about two minutes on the public tables.
    """
    folder = timings_folder(data)
    report, steps, servers = compare_folder(folder), compare_steps(folder), server_tables(folder)
    published = folder.parent / "published" / "published_visible.csv"
    engines = "\n".join(engine_lines(published)) if published.is_file() else ""
    text = render(report, steps, servers, engines, transfers(report, folder))
    if _written(text, out):
        for gate in gates(report, steps, servers):
            found = "-" if gate.found is None else f"{gate.found.mape:.1f} %"
            click.echo(f"{gate.name}: {found} (limit {gate.limit_percent:g} %): {gate.verdict}")


@validate.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with recorded sequences NAME_accepted.csv.gz (or acceptance/ with them), as sequence_replay reads; "
    "NAME_streams_relabelled.csv.gz beside them are replayed.",
)
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write the Markdown report here.")
def acceptance(data: Path, out: Path | None) -> None:
    """Tokens per step, spread and correlation in time against recordings, fitted on one half and scored on the other.

    Prints the report, or with --out the targets only. Takes about a minute per recording.
    """
    sets = score_folder(data)
    if _written(render_acceptance(sets), out):
        for target in targets(sets):
            click.echo(f"{target.name}: {target.found:+.2f} (limit {target.limit:g}): {target.verdict}")


def _written(text: str, out: Path | None) -> bool:
    """Whether the report went to a file; printed otherwise."""
    if out is None:
        click.echo(text, nl=False)
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return True
