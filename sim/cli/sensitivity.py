"""`specsim sensitivity`: how wrong each input may be before the decision flips."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import click

from sim.cli.numbers import Given
from sim.cli.running import names, progress
from sim.errors import ScenarioError
from sim.experiment import sensitivity as study
from sim.experiment.executor import local_executor
from sim.experiment.inputs_in_doubt import GROUPS, INPUTS, SEARCHED, Input, Range, Study, chosen_inputs
from sim.report.dashboard import write_dashboard
from sim.report.sensitivity import sensitivity_text
from sim.scenario.defaults import OPEN_LOOP_OBJECTIVES
from sim.scenario.load import load_scenario
from sim.scenario.schema import Objective, Scenario


@click.command(name="sensitivity")
@click.argument("scenario")
@click.option("--over", metavar="A,B", help=f"Inputs: {', '.join([*INPUTS, *GROUPS])}. Default: all there are.")
@click.option("--range", "ranges", multiple=True, metavar="INPUT=LOW:HIGH",
              help="Plausible factors of an input; may be repeated.")  # fmt: skip
@click.option("--search", default=f"{SEARCHED[0]:g}:{SEARCHED[1]:g}", show_default=True, metavar="LOW:HIGH",
              help="Factors between which a flip is looked for.")  # fmt: skip
@click.option("--objective", type=click.Choice(get_args(Objective)), metavar="METRIC",
              help="What decides; default output_throughput, mean_tpot_ms in an open loop.")  # fmt: skip
@click.option("--min-gain", type=click.FloatRange(0, 100, min_open=True), default=1.0, show_default=True,
              help="Speed-up that counts as paying.")  # fmt: skip
@click.option("--arm", help="Who is decided upon; needed where several arms speculate.")
@click.option("--replicates", type=click.IntRange(2, 1000), default=5, show_default=True,
              help="Paired runs of each point.")  # fmt: skip
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), default=0.95,
              show_default=True, help="Of all intervals.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field; may be repeated.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Folder in which NAME/TIME-HASH is made.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the table.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the answer and the paths.")
def sensitivity(
    scenario: str,
    over: str | None,
    ranges: tuple[str, ...],
    search: str,
    objective: str | None,
    min_gain: float,
    arm: str | None,
    replicates: int,
    confidence: float,
    overrides: tuple[str, ...],
    output: Path,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Scale each input of SCENARIO and find where "it pays" turns into "it does not".

    A factor of 1 is the scenario as stated. Exit codes: 0 answered, 2 wrong scenario, 5 disk full, 130 interrupted.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loaded = load_scenario(scenario, overrides)
    given = Given()
    searched = given.factors("--search", search)
    stated = dict(_ranges(given, ranges))
    none = tuple[Input, ...]()
    inputs = given.made("--over", lambda: chosen_inputs(loaded.scenario, names(over)), none)
    who = given.made("--arm", lambda: _arm(loaded.scenario, arm), "")
    for name in stated.keys() - {one.name for one in inputs}:
        given.wrong("--range", f"{name}: no effect, it is not among the inputs")
    given.finish()
    metric = objective or _objective(loaded.scenario)
    asked = Study(who, inputs, stated, searched, metric, min_gain, replicates, confidence)
    work = study.Work(output, partial(local_executor, jobs), None if quiet else progress())
    answer = study.sensitivity(loaded, asked, work)
    page = write_dashboard(answer.run_dir)
    if as_json:
        click.echo(json.dumps(answer.document | {"run_dir": str(answer.run_dir)}, allow_nan=False))
        return
    click.echo(sensitivity_text(answer.document, sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    click.echo(f"Wrote {answer.run_dir}\nWrote {page}")


def _ranges(given: Given, ranges: Sequence[str]) -> list[tuple[str, Range]]:
    found = []
    for text in ranges:
        name, equals, factors = text.partition("=")
        if not equals:
            given.wrong("--range", f"found {text!r}; allowed: INPUT=LOW:HIGH, such as acceptance=0.9:1.1")
            continue
        pair = given.factors("--range", factors)
        found += [(part, pair) for part in GROUPS.get(name, (name,))]
    return found


def _arm(scenario: Scenario, arm: str | None) -> str:
    arms = [name for name in scenario.arms if name != scenario.baseline]
    if arm is not None and arm not in arms:
        raise ScenarioError(f"no such arm beside the baseline: {arm}; there are {', '.join(arms) or 'none'}")
    if arm is None and len(arms) != 1:
        raise ScenarioError(f"choose one of {', '.join(arms)}" if arms else "the scenario has no arm but its baseline")
    return arm or arms[0]


def _objective(scenario: Scenario) -> str:
    return "output_throughput" if scenario.workload.arrivals.kind == "closed" else OPEN_LOOP_OBJECTIVES[0]
