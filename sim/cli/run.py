"""`specsim run`: all arms of a scenario on the same requests, results and a dashboard."""

from functools import partial
from pathlib import Path

import click

from sim.cli.running import finish, names, plan_text, progress
from sim.experiment.quick import quick_overrides
from sim.experiment.run import run as run_experiment
from sim.scenario.load import load_scenario


@click.command(name="run")
@click.argument("scenario")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Folder in which NAME/TIME-HASH is made.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field; may be repeated.")
@click.option("--seed", type=click.IntRange(0), help="Seed of all random numbers.")
@click.option("--replicates", type=click.IntRange(1), help="Runs per operating point and arm.")
@click.option("--arms", metavar="A,B", help="Run only these arms (and the baseline).")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor.")
@click.option("--quick", is_flag=True, help="A first look: two replicates, at most five values per varied field.")
@click.option("--dry-run", is_flag=True, help="Say what would be run and stop; nothing is written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the summary.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary, only the paths.")
@click.pass_context
def run(
    ctx: click.Context,
    scenario: str,
    output: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    replicates: int | None,
    arms: str | None,
    jobs: int | None,
    quick: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run all arms of SCENARIO (a file, or the name of a shipped one) on the same requests.

    Exit codes: 0 done, 2 wrong scenario, 4 some runs failed, 5 disk or memory full, 130 interrupted (what finished is
    kept).
    """
    settings = [*overrides, *([f"seed={seed}"] if seed is not None else [])]
    loaded = load_scenario(scenario, settings)
    if quick:
        loaded = load_scenario(scenario, [*settings, *quick_overrides(loaded.scenario)])
    chosen = names(arms)
    if dry_run:
        click.echo(plan_text(loaded, chosen, replicates, as_json))
        return
    shown = None if quiet else progress()
    make = partial(run_experiment, loaded, output, arms=chosen, replicates=replicates, jobs=jobs, progress=shown)
    ctx.exit(finish(make, loaded.notes, as_json=as_json, quiet=quiet))
