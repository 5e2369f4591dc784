"""`specsim schema`: the JSON Schema of scenarios, for editors."""

import click

from sim.scenario.json_schema import schema_text


@click.command()
def schema() -> None:
    """Print the JSON Schema of scenarios, for completion and checks in editors."""
    click.echo(schema_text(), nl=False)
