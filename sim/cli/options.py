"""Options that several commands have, each spelt, limited and explained once."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from sim.cli.arms import narrow
from sim.cli.running import progress
from sim.experiment.executor import local_executor
from sim.experiment.rounds import Work
from sim.scenario.load import LoadedScenario, load_scenario

Command = Callable[..., Any]

SEED = click.option("--seed", type=click.IntRange(0), help="Seed of all random numbers.")
REPLICATES = click.option("--replicates", type=click.IntRange(1), help="Runs per operating point and arm.")
MAX_REPLICATES = click.option("--max-replicates", type=click.IntRange(2), help="Stop adding replicates here.")
MIN_GAIN = click.option(
    "--min-gain", type=click.FloatRange(0, 100, min_open=True), help="Speed-up that counts as paying; default 1."
)
CONFIDENCE = click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    help="Of all intervals; default 0.95.",
)


@dataclass(frozen=True, slots=True)
class Common:
    """SCENARIO and the options that every command that simulates one has.

    Attributes:
        scenario: a file, or the name of a shipped one.
        overrides: of `--set`.
        output: where results folders are made.
        jobs: worker processes; None = one per processor.
        as_json: whether one JSON document is to be printed.
        quiet: no progress, and little or no text.
    """

    scenario: str
    overrides: tuple[str, ...]
    output: Path
    jobs: int | None
    as_json: bool
    quiet: bool

    def load(
        self, arms: str | None = None, replicates: int | None = None, *, more: Sequence[str] = ()
    ) -> LoadedScenario:
        """The scenario with `--set` and `more` overrides, narrowed to `--arms` and `--replicates`."""
        return narrow(load_scenario(self.scenario, [*self.overrides, *more]), arms, replicates)

    def work(self) -> Work:
        """Where and how simulations run."""
        return Work(self.output, partial(local_executor, self.jobs), None if self.quiet else progress())


def simulates(
    *, json: str | None = None, quiet: str, folder: str = "Folder in which NAME/TIME-HASH is made."
) -> Callable[[Command], Command]:
    """Give a command SCENARIO, --set, --output, --jobs, --json and --quiet, handed over as one `common`.

    Args:
        json: what --json prints; None leaves the option out.
        quiet: what -q leaves.
        folder: what --output is.
    """
    options = [
        click.argument("scenario"),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
                     help="Override one field; may be repeated."),
        click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
                     help=folder),
        click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor."),
        *([] if json is None else [click.option("--json", "as_json", is_flag=True, help=json)]),
        click.option("-q", "--quiet", is_flag=True, help=quiet),
    ]  # fmt: skip

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_common(
            *, scenario: str, overrides: tuple[str, ...], output: Path, jobs: int | None, quiet: bool, **own: Any
        ) -> Any:
            common = Common(scenario, overrides, output, jobs, bool(own.pop("as_json", False)), quiet)
            return command(common=common, **own)

        return functools.reduce(lambda made, option: option(made), reversed(options), with_common)

    return decorate
