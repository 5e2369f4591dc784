"""`specsim report`: the dashboard of a results folder."""

import webbrowser
from pathlib import Path
from typing import cast

import click

from sim.cli.colour import colour_wanted
from sim.cli.overlay import MEASURED, measured_points
from sim.report.dashboard import Plotlyjs, write_dashboard
from sim.report.reader import load_results
from sim.report.terminal import summary_text


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write; default FOLDER/dashboard.html.")
@click.option("--open", "show", is_flag=True, help="Open the page in the web browser.")
@click.option(
    "--plotlyjs",
    type=click.Choice(["gzip", "inline"]),
    default="gzip",
    show_default=True,
    help="gzip: 2 MB, unpacked in the page. inline: 5 MB, for old browsers.",
)
@MEASURED
@click.option("-q", "--quiet", is_flag=True, help="Do not print the summary.")
def report(
    folder: Path, output: Path | None, show: bool, plotlyjs: str, measured: tuple[str, ...], quiet: bool
) -> None:
    """Build the dashboard of a results FOLDER and print the summary."""
    points = measured_points(measured, load_results(folder).arms) if measured else None
    page = write_dashboard(folder, output, cast(Plotlyjs, plotlyjs), points)
    if not quiet:
        click.echo(summary_text(folder, colour=colour_wanted()))
    click.echo(f"Wrote {page}")
    if show:
        webbrowser.open(page.resolve().as_uri())
