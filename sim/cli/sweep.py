"""`specsim sweep`: many operating points, on all processors or a cluster, resumable and in shards."""

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import click

from sim.cli.arms import ARMS
from sim.cli.options import REPLICATES, SEED, Common, simulates
from sim.cli.running import finish, plan_text, too_many
from sim.errors import ResultsError, ScenarioError
from sim.experiment.dask_executor import dask_executor
from sim.experiment.executor import STALL_S, Executor, local_executor
from sim.experiment.plan import WHOLE, Shard, estimate
from sim.experiment.rounds import HowToRun
from sim.experiment.run import begun, find_unfinished
from sim.experiment.run import run as run_experiment
from sim.experiment.store import while_unfinished
from sim.scenario.load import LoadedScenario


class ShardType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """`3/16`: the third of sixteen parts."""

    name = "I/N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        """The shard; a usage error when it is none."""
        if isinstance(value, Shard):
            return value
        match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", str(value))
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            self.fail(f"found {value!r}; allowed: I/N with I from 1 to N, such as 3/16", param, ctx)
        return Shard(int(match[1]), int(match[2]))


@click.command(name="sweep")
@simulates(json="Print one JSON document instead of the summary.", quiet="No progress and no summary, only the paths.")
@click.option("--vary", multiple=True, metavar="KEY=VALUES",
              help="A field to vary: 1,2,4 or 1:512:log2 or 0.5:0.9:linear:5; may be repeated.")  # fmt: skip
@click.option("--combine", type=click.Choice(["grid", "zip"]), help="Several fields: all combinations, or in step.")
@SEED
@REPLICATES
@ARMS
@click.option("--executor", type=click.Choice(["local", "dask"]), default="local", show_default=True,
              help="Where runs are made: this machine, or an existing Dask cluster.")  # fmt: skip
@click.option(
    "--scheduler", metavar="ADDRESS|FILE", help="Of the Dask cluster: tcp://host:8786, or its scheduler file."
)
@click.option("--shard", type=ShardType(), default=WHOLE, help="Run only this part, such as 3/16; `merge` joins them.")
@click.option("--resume", is_flag=True, help="Go on with the unfinished folder of this scenario (or SCENARIO is one).")
@click.option("--allow-mixed", is_flag=True, help="Resume what another version of specsim began.")
@click.option("--max-runs", type=click.IntRange(1), default=20_000, show_default=True,
              help="Refuse larger sweeps; a dry run says so.")  # fmt: skip
@click.option("--copy-to", metavar="URL", help="Also copy the results to an fsspec URL, such as s3://bucket/results.")
@click.option("--stall-timeout", type=click.FloatRange(1), default=STALL_S, show_default=True, metavar="SECONDS",
              help="Give up what runs when nothing finishes for so long.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count and cost what would be run and stop; nothing is written.")
@click.pass_context
def sweep(
    ctx: click.Context,
    common: Common,
    vary: tuple[str, ...],
    combine: str | None,
    seed: int | None,
    replicates: int | None,
    arms: str | None,
    executor: str,
    scheduler: str | None,
    shard: Shard,
    resume: bool,
    allow_mixed: bool,
    max_runs: int,
    copy_to: str | None,
    stall_timeout: float,
    dry_run: bool,
) -> None:
    """Run SCENARIO at many operating points: a grid, lists in step, ranges, or random draws of any field.

    Exit codes: 0 done, 2 wrong scenario, 4 some runs failed, 5 disk or memory full, 130 interrupted (what finished is
    kept, and --resume goes on).
    """
    settings = [f"sweep.vary.{key}={_as_yaml(values)}" for key, values in _varied(vary)]
    settings += [f"sweep.combine={combine}"] if combine else []
    settings += [f"seed={seed}"] if seed is not None else []
    folder = _named(common.scenario) if resume else None
    if folder is not None:
        if settings or common.overrides or arms or replicates or shard != WHOLE:
            raise click.UsageError("an unfinished folder is resumed as it was begun: no other options")
        loaded, shard = begun(folder)
    else:
        loaded = common.load(arms, replicates, more=settings)
    if dry_run:
        click.echo(plan_text(loaded, common.as_json, shard, max_runs))
        return
    _check_size(loaded, shard, max_runs)
    if resume and folder is None:
        folder = find_unfinished(loaded, common.output, shard)
        if folder is None and not common.quiet:
            click.echo("nothing unfinished of this scenario; starting afresh", err=True)
    workers = partial(_workers, executor, scheduler, common.jobs, stall_timeout)
    how = HowToRun(workers, shard=shard, resume=folder, allow_mixed=allow_mixed)
    make = partial(run_experiment, loaded, common.output, progress=common.work().progress, how=how)
    ctx.exit(finish(make, loaded.notes, as_json=common.as_json, quiet=common.quiet, copy_url=copy_to))


def _named(scenario: str) -> Path | None:
    """The unfinished folder that SCENARIO is, also while it is hidden; None when it is none."""
    path = Path(scenario)
    return next((each for each in (path, while_unfinished(path)) if path.name and each.is_dir()), None)


def _key_and_values(argument: str) -> tuple[str, str]:
    key, equals, values = argument.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise click.UsageError(f"--vary {argument}: expected KEY=VALUES, such as engine.max_num_seqs=64,128")
    return key.strip(), values.strip()


def _varied(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Every `--vary` as key and values; one given twice would silently replace the first."""
    pairs = [_key_and_values(argument) for argument in arguments]
    keys = [key for key, _ in pairs]
    twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if twice:
        raise click.UsageError(f"--vary: given twice: {', '.join(twice)}; state all values of a field in one --vary")
    return pairs


def _as_yaml(values: str) -> str:
    """`1,2,4` as a YAML list; ranges and what already is a list or mapping stay as they are."""
    if values[0] in "[{":
        return values
    return json.dumps(values) if ":" in values and "," not in values else f"[{values}]"


def _check_size(loaded: LoadedScenario, shard: Shard, max_runs: int) -> None:
    runs = estimate(loaded.scenario, loaded.base_dir, shard).runs
    if runs > max_runs:
        raise ScenarioError(too_many(runs, max_runs))


def _workers(
    executor: str, scheduler: str | None, jobs: int | None, stall_s: float
) -> AbstractContextManager[Executor]:
    if executor == "local":
        if scheduler is not None:
            raise click.UsageError("--scheduler needs --executor dask")
        return local_executor(jobs, stall_s)
    if scheduler is None:
        raise ResultsError("--executor dask needs --scheduler: an address such as tcp://host:8786, or a scheduler file")
    return dask_executor(scheduler, stall_s)
