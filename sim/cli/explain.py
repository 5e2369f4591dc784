"""`specsim explain`: what the cost model says about a scenario, without simulating it."""

import click

from sim.acceptance.base import MAX_DRAFT_TOKENS
from sim.cli.arms import ARMS, narrow
from sim.cli.colour import colour_wanted
from sim.cli.numbers import parse_counts
from sim.experiment.explain import Asked
from sim.experiment.explain import explain as explain_scenario
from sim.report.explain import explanation_json, explanation_text
from sim.scenario.load import load_scenario


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers as `1,8,64`, `8k` or `0:5` (both ends included), in ascending order without repetitions."""

    name = "counts"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Parse; what is wrong becomes a usage error."""
        try:
            return parse_counts(str(value), self.least, self.most)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(name="explain")
@click.argument("scenario")
@click.option("--batch", "batches", type=Counts(1, 1_000_000), metavar="1,8,64",
              help="Batches of the step-time table; default those of the sweep, else powers of two.")  # fmt: skip
@click.option("--k", "ks", type=Counts(0, MAX_DRAFT_TOKENS), metavar="0:5",
              help="Draft tokens per step of the table; default 0 and those of the arms.")  # fmt: skip
@click.option("--context", "contexts", type=Counts(1, 100_000_000), metavar="512,8k",
              help="Tokens of context of every request; default the mean that a decode step meets.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field; may be repeated.")
@ARMS
@click.option("--breakdown", is_flag=True, help="The target's time by op group, for every row of the table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def explain(
    scenario: str,
    batches: tuple[int, ...] | None,
    ks: tuple[int, ...] | None,
    contexts: tuple[int, ...] | None,
    overrides: tuple[str, ...],
    arms: str | None,
    breakdown: bool,
    as_json: bool,
) -> None:
    """Explain SCENARIO (a file, or the name of a shipped one) without simulating it.

    Memory of every arm, step times over batch x K x context with what bounds them, where the bound changes, and the
    first closed-form break-even with its band.
    """
    loaded = narrow(load_scenario(scenario, overrides), arms)
    explanation = explain_scenario(loaded, Asked(batches, ks, contexts))
    if as_json:
        click.echo(explanation_json(explanation))
        return
    colour = colour_wanted()
    text = explanation_text(explanation, every_k=ks is not None, breakdown=breakdown, colour=colour)
    click.echo(text, nl=False, color=colour)
