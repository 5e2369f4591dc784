"""`specsim run`: all arms of a scenario on the same requests, results and a dashboard."""

from functools import partial

import click

from sim.cli.arms import ARMS
from sim.cli.options import REPLICATES, SEED, Common, simulates
from sim.cli.running import finish, plan_text
from sim.experiment.quick import quick_overrides
from sim.experiment.rounds import HowToRun
from sim.experiment.run import run as run_experiment


@click.command(name="run")
@simulates(json="Print one JSON document instead of the summary.", quiet="No progress and no summary, only the paths.")
@SEED
@REPLICATES
@ARMS
@click.option("--quick", is_flag=True, help="A first look: two replicates, at most five values per varied field.")
@click.option("--dry-run", is_flag=True, help="Say what would be run and stop; nothing is written.")
@click.pass_context
def run(
    ctx: click.Context,
    common: Common,
    seed: int | None,
    replicates: int | None,
    arms: str | None,
    quick: bool,
    dry_run: bool,
) -> None:
    """Run all arms of SCENARIO (a file, or the name of a shipped one) on the same requests.

    Exit codes: 0 done, 2 wrong scenario, 4 some runs failed, 5 disk or memory full, 130 interrupted (what finished is
    kept).
    """
    settings = [f"seed={seed}"] if seed is not None else []
    if quick:
        settings += quick_overrides(common.load(more=settings).scenario)
    loaded, work = common.load(arms, replicates, more=settings), common.work()
    if dry_run:
        click.echo(plan_text(loaded, common.as_json))
        return
    make = partial(run_experiment, loaded, work.out_dir, progress=work.progress, how=HowToRun(work.workers))
    ctx.exit(finish(make, loaded.notes, as_json=common.as_json, quiet=common.quiet))
