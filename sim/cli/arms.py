"""`--arms`: which arms of a scenario are looked at."""

import click

from sim.experiment.plan import narrowed
from sim.scenario.load import LoadedScenario

ARMS = click.option("--arms", metavar="A,B", help="Only these arms (and the baseline).")


def names(text: str | None) -> list[str] | None:
    """`a,b` as a list; None when it was not given."""
    return None if text is None else [name.strip() for name in text.split(",")]


def narrow(loaded: LoadedScenario, arms: str | None, replicates: int | None = None) -> LoadedScenario:
    """The scenario with the arms of `--arms` (and the baseline) and so many replicates; None leaves it as it is."""
    scenario = narrowed(loaded.scenario, names(arms), replicates)
    return LoadedScenario(scenario, loaded.base_dir, loaded.source_text, loaded.notes)
