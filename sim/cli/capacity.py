"""`specsim capacity`: the highest load within an SLO, and the GPUs for a given load."""

import json
from pathlib import Path
from typing import Any

import click

from sim.cli.arms import ARMS, narrow
from sim.cli.numbers import Given, RangeType
from sim.cli.options import CONFIDENCE, MAX_REPLICATES, Common, simulates
from sim.cli.running import exit_code
from sim.cli.slo_options import parse_load, parse_slo
from sim.errors import ScenarioError
from sim.experiment.capacity_setting import RANGES, Setting, limits_of
from sim.experiment.capacity_study import Study, study
from sim.experiment.load_axis import load_axis
from sim.report.capacity import capacity_text
from sim.report.dashboard import write_dashboard
from sim.scenario.load import LoadedScenario


@click.command(name="capacity")
@simulates(json="Print one JSON document instead of the summary.", quiet="No progress, only the answer and paths.")
@click.option("--slo", metavar="LIMITS|NAME", help="ttft:2000,tpot:50,percentile:99, or see `specsim catalog slos`.")
@click.option("--load", "wanted", metavar="LOAD", help="Also: replicas and GPUs for this load, such as 40rps.")
@click.option("--over", type=click.Choice(list(RANGES)), help="Which load. Default: that of --load, else request_rate.")
@click.option("--range", "limits", type=RangeType(), help="Lowest and highest load to try.")
@CONFIDENCE
@click.option("--tolerance", type=click.FloatRange(0, 10, min_open=True), help="How closely to bracket a capacity.")
@click.option("--half-width", type=click.FloatRange(0, 10, min_open=True),
              help="Add replicates until intervals are this narrow, relative to the capacity.")  # fmt: skip
@click.option("--replicates", type=click.IntRange(2), help="Replicates of the first round; default the scenario's.")
@MAX_REPLICATES
@ARMS
@click.pass_context
def capacity(
    ctx: click.Context,
    common: Common,
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
) -> None:
    """Find the highest load that each arm of SCENARIO carries within its SLO, with an interval and what stops it.

    With --load, fleets of replicas behind the scenario's router are simulated to find the smallest that carries it.
    Exit codes: 0 answered, 2 wrong scenario, 4 some runs failed, 5 disk full, 130 interrupted.
    """
    options: dict[str, Any] = {"confidence": confidence, "tolerance": tolerance, "half_width": half_width}
    options |= {"replicates": replicates, "max_replicates": max_replicates}
    loaded, load, axis = _read(common, slo, wanted, over, limits)
    loaded = narrow(loaded, arms)
    setting = _setting(loaded, axis, limits, {key: value for key, value in options.items() if value is not None})
    found = study(setting, common.work(), load)
    page = write_dashboard(found.run_dir)
    _print(found, page, common.as_json)
    ctx.exit(exit_code(found.run_dir))


def _read(
    common: Common,
    slo: str | None,
    wanted: str | None,
    over: str | None,
    limits: tuple[float, float] | None,
) -> tuple[LoadedScenario, float | None, str]:
    """The scenario, the load and the axis; every mistake at once, those of the options first."""
    given, load, unit_axis = Given(), None, None
    limit = []
    if slo is not None:
        try:
            limit.append(f"slo={json.dumps(parse_slo(slo))}")
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
        loaded = common.load(more=limit)
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
