"""`specsim capacity`: the highest load within an SLO, and the GPUs for a given load."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import click

from sim.cli.breakeven import RangeType
from sim.cli.numbers import Given
from sim.cli.running import PARTIAL, names, progress
from sim.cli.slo_options import parse_load, parse_slo
from sim.errors import ScenarioError
from sim.experiment.capacity_setting import RANGES, Setting, limits_of
from sim.experiment.capacity_study import HowToStudy, Study, study
from sim.experiment.executor import local_executor
from sim.experiment.load_axis import load_axis
from sim.experiment.plan import narrowed
from sim.experiment.results import load as load_results
from sim.report.capacity import capacity_text
from sim.report.dashboard import write_dashboard
from sim.scenario.load import LoadedScenario, load_scenario


@click.command(name="capacity")
@click.argument("scenario")
@click.option("--slo", metavar="LIMITS|NAME", help="ttft:2000,tpot:50,percentile:99, or see `specsim catalog slos`.")
@click.option("--load", "wanted", metavar="LOAD", help="Also: replicas and GPUs for this load, such as 40rps.")
@click.option("--over", type=click.Choice(list(RANGES)), help="Which load. Default: that of --load, else request_rate.")
@click.option("--range", "limits", type=RangeType(), help="Lowest and highest load to try.")
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), help="Of all intervals.")
@click.option("--tolerance", type=click.FloatRange(0, 10, min_open=True), help="How closely to bracket a capacity.")
@click.option("--half-width", type=click.FloatRange(0, 10, min_open=True),
              help="Add replicates until intervals are this narrow, relative to the capacity.")  # fmt: skip
@click.option("--replicates", type=click.IntRange(2), help="Replicates of the first round; default the scenario's.")
@click.option("--max-replicates", type=click.IntRange(2), help="Stop adding replicates here.")
@click.option("--arms", metavar="A,B", help="Only these arms (and the baseline).")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field; may be repeated.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Folder in which NAME/TIME-HASH is made.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the summary.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the answer and paths.")
@click.pass_context
def capacity(
    ctx: click.Context,
    scenario: str,
    slo: str | None,
    wanted: str | None,
    over: str | None,
    limits: tuple[float, float] | None,
    confidence: float | None,
    tolerance: float | None,
    half_width: float | None,
    replicates: int | None,
    max_replicates: int | None,
    arms: str | None,
    overrides: tuple[str, ...],
    output: Path,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the highest load that each arm of SCENARIO carries within its SLO, with an interval and what stops it.

    With --load, fleets of replicas behind the scenario's router are simulated to find the smallest that carries it.
    Exit codes: 0 answered, 2 wrong scenario, 4 some runs failed, 5 disk full, 130 interrupted.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options: dict[str, Any] = {"confidence": confidence, "tolerance": tolerance, "half_width": half_width}
    options |= {"replicates": replicates, "max_replicates": max_replicates}
    loaded, load, axis = _read(scenario, slo, wanted, over, limits, overrides)
    loaded = LoadedScenario(
        narrowed(loaded.scenario, names(arms), None), loaded.base_dir, loaded.source_text, loaded.notes
    )
    setting = _setting(loaded, axis, limits, {key: value for key, value in options.items() if value is not None})
    how = HowToStudy(output, partial(local_executor, jobs), None if quiet else progress())
    found = study(setting, how, load)
    page = write_dashboard(found.run_dir)
    _print(found, page, as_json)
    complete = load_results(found.run_dir).manifest["status"] == "done"
    ctx.exit(0 if complete else PARTIAL)


def _read(
    scenario: str,
    slo: str | None,
    wanted: str | None,
    over: str | None,
    limits: tuple[float, float] | None,
    overrides: tuple[str, ...],
) -> tuple[LoadedScenario, float | None, str]:
    """The scenario, the load and the axis; every mistake at once, those of the options first."""
    given, load, unit_axis = Given(), None, None
    if slo is not None:
        try:
            overrides = (*overrides, f"slo={json.dumps(parse_slo(slo))}")
        except ValueError as error:
            given.wrong("--slo", str(error))
    if wanted is not None:
        try:
            load, unit_axis = parse_load(wanted)
        except ValueError as error:
            given.wrong("--load", str(error))
    axis = over or unit_axis or "request_rate"
    if unit_axis not in (None, axis):
        given.wrong("--load", f"found {wanted!r}, but --over {axis} is asked for")
    if limits is not None and not 0 < limits[0] < limits[1]:
        given.wrong("--range", f"found {limits[0]:g}:{limits[1]:g}; allowed: 0 < LOW < HIGH")
    try:
        loaded = load_scenario(scenario, overrides)
        limits_of(loaded.scenario.slo)
    except ScenarioError as error:
        given.problems += error.problems
    given.finish()
    return loaded, load, axis


def _setting(loaded: LoadedScenario, axis: str, limits: tuple[float, float] | None, options: dict[str, Any]) -> Setting:
    options = {"replicates": max(2, loaded.scenario.sweep.replicates), **options}
    return Setting(loaded, limits_of(loaded.scenario.slo), load_axis(loaded, axis), limits or RANGES[axis], **options)


def _print(found: Study, page: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"run_dir": str(found.run_dir), "capacity": found.document}, allow_nan=False))
        return
    click.echo(capacity_text(found.document))
    click.echo(f"Wrote {found.run_dir}\nWrote {page}")
