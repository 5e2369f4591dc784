"""`specsim clean`: remove what killed runs left behind."""

from pathlib import Path

import click

from sim.experiment.store import clear_litter, unfinished


@click.command(name="clean")
@click.argument("output", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("results"))
@click.option("--yes", is_flag=True, help="Also remove unfinished folders that --resume could still go on with.")
def clean(output: Path, yes: bool) -> None:
    """Remove unfinished folders below OUTPUT (default: results) that nobody works on.

    Those that hold finished runs are only listed, unless --yes is given.
    """
    parents = [output, *(folder for folder in sorted(output.iterdir()) if folder.is_dir())]
    for parent in parents:
        for folder in clear_litter(parent, everything=yes):
            click.echo(f"removed {folder}")
        for folder in unfinished(parent):
            click.echo(f"kept {folder}: `specsim sweep {folder} --resume` goes on with it; --yes removes it")
