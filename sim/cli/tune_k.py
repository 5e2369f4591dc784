"""`specsim tune-k`: the best K by batch size, ready to paste into an engine."""

import json
from typing import get_args

import click
from click.core import ParameterSource

from sim.cli.colour import colour_wanted
from sim.cli.numbers import Given
from sim.cli.options import Common, simulates
from sim.cli.running import exit_code
from sim.experiment import tune_k as tuning
from sim.experiment.engine_export import ENGINES, form_of
from sim.experiment.k_check import Judge
from sim.report.dashboard import write_dashboard
from sim.report.tune_k import tuned_text
from sim.scenario.schema import Objective

#: K beyond this is nowhere in use.
MOST_K = 32


@click.command(name="tune-k")
@simulates(quiet="Only the settings to paste and the paths.")
@click.option("--k", "ks", default="0:8", show_default=True, metavar="RANGE", help="K to choose from.")
@click.option("--arm", help="Whose K; needed where several arms speculate.")
@click.option("--tie", default="1%", show_default=True, metavar="SHARE", help="No difference; the smaller K wins.")
@click.option("--min-range", type=click.IntRange(1, 4096), default=4, show_default=True,
              help="Fewest batch sizes of a range.")  # fmt: skip
@click.option("--over", type=click.Choice(["batch", "context"]), default="batch", show_default=True,
              help="`context` tabulates K by context too.")  # fmt: skip
@click.option("--objective", type=click.Choice(get_args(Objective)), default="output_throughput", metavar="METRIC",
              help="What has to be better in simulations; default output_throughput.")  # fmt: skip
@click.option("--concurrency", metavar="LIST", help="Loads to simulate; default powers of 4.")
@click.option("--replicates", type=click.IntRange(2, 1000), default=3, show_default=True,
              help="Runs of each arm and load.")  # fmt: skip
@click.option("--no-simulation", is_flag=True, help="The closed form alone; writes nothing.")
@click.option("--emit", type=click.Choice([*ENGINES, "json"]), default="vllm", show_default=True, help="What to print.")
@click.option("--target-version", metavar="VERSION", help="Of the engine to write for; default the newest form known.")
@click.pass_context
def tune_k(
    ctx: click.Context,
    common: Common,
    ks: str,
    arm: str | None,
    tie: str,
    min_range: int,
    over: str,
    objective: str,
    concurrency: str | None,
    replicates: int,
    no_simulation: bool,
    emit: str,
    target_version: str | None,
) -> None:
    """Choose the best K for every batch size of SCENARIO and write it the way an engine takes it.

    K comes from prices and acceptance in closed form, is checked and corrected by paired simulations in closed loop,
    and is then run against plain decoding and fixed K. Exit codes: 0 answered, 2 wrong scenario, 4 some runs failed,
    5 disk full, 130 interrupted.
    """
    given = Given()
    tried = given.counts("--k", ks, 0, MOST_K)
    if tried[-1] == 0 and not given.problems:
        given.wrong("--k", "K = 0 alone leaves nothing to choose")
    loads = None if concurrency is None else given.counts("--concurrency", concurrency, 1, 100_000)
    share = given.share("--tie", tie)
    target = _target(given, emit, target_version)
    if no_simulation:
        for name in ("objective", "concurrency", "replicates", "output", "jobs"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                given.wrong(f"--{name}", "no effect with --no-simulation")
    given.finish()
    judge = Judge(objective, replicates, share, 0.95)
    wish = tuning.Wish(arm, tried, judge, min_range, over == "context", loads, target)
    work = None if no_simulation else common.work()
    tuned = tuning.tune_k(common.load(), wish, work)
    ctx.exit(_finish(tuned, emit, common.quiet))


def _target(given: Given, emit: str, version: str | None) -> tuple[str, str] | None:
    if version is None:
        return None
    if emit == "json":
        given.wrong("--target-version", "no effect with --emit json; name the engine")
        return None
    given.made("--target-version", lambda: form_of(emit, version), "")
    return emit, version


def _finish(tuned: tuning.Tuned, emit: str, quiet: bool) -> int:
    page = write_dashboard(tuned.run_dir) if tuned.run_dir is not None else None
    if emit == "json":
        click.echo(json.dumps(tuned.document | {"run_dir": str(tuned.run_dir or "")}, allow_nan=False))
    elif quiet:
        click.echo(tuned.document["emit"][emit]["text"])
    else:
        click.echo(tuned_text(tuned.document, emit, colour_wanted()))
    if tuned.run_dir is None:
        return 0
    if emit != "json":
        click.echo(f"Wrote {tuned.run_dir}\nWrote {page}")
    return exit_code(tuned.run_dir)
