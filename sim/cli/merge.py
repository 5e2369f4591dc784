"""`specsim merge`: shards of a sweep joined to one results folder."""

from pathlib import Path

import click

from sim.cli.running import finish
from sim.experiment.merge import merge as merge_shards


@click.command(name="merge")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Folder in which NAME/TIME-HASH is made.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the summary.")
@click.option("-q", "--quiet", is_flag=True, help="No summary, only the paths.")
@click.pass_context
def merge(ctx: click.Context, folders: tuple[Path, ...], output: Path, as_json: bool, quiet: bool) -> None:
    """Join the results FOLDERS of all shards of a sweep: the same bytes as one machine would have written."""
    ctx.exit(finish(lambda: merge_shards(folders, output), (), as_json=as_json, quiet=quiet))
