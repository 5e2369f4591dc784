"""`specsim sensitivity`: how wrong each input may be before the decision flips."""

import json
from collections.abc import Sequence
from typing import get_args

import click

from sim.cli.arms import names
from sim.cli.colour import colour_wanted
from sim.cli.numbers import Given
from sim.cli.options import CONFIDENCE, MIN_GAIN, Common, simulates
from sim.errors import ScenarioError
from sim.experiment import sensitivity as study
from sim.experiment.inputs_in_doubt import GROUPS, INPUTS, SEARCHED, Input, Range, Study, chosen_inputs
from sim.report.dashboard import write_dashboard
from sim.report.sensitivity import sensitivity_text
from sim.scenario.defaults import OPEN_LOOP_OBJECTIVES
from sim.scenario.schema import Objective, Scenario
from sim.scenario.suggestions import did_you_mean


@click.command(name="sensitivity")
@simulates(json="Print one JSON document instead of the table.", quiet="No progress, only the answer and the paths.")
@click.option("--over", metavar="A,B", help=f"Inputs: {', '.join([*INPUTS, *GROUPS])}. Default: all there are.")
@click.option("--range", "ranges", multiple=True, metavar="INPUT=LOW:HIGH",
              help="Plausible factors of an input; may be repeated.")  # fmt: skip
@click.option("--search", default=f"{SEARCHED[0]:g}:{SEARCHED[1]:g}", show_default=True, metavar="LOW:HIGH",
              help="Factors between which a flip is looked for.")  # fmt: skip
@click.option("--objective", type=click.Choice(get_args(Objective)), metavar="METRIC",
              help="What decides; default output_throughput, mean_tpot_ms in an open loop.")  # fmt: skip
@MIN_GAIN
@click.option("--arm", help="Who is decided upon; needed where several arms speculate.")
@click.option("--replicates", type=click.IntRange(2, 1000), default=5, show_default=True,
              help="Paired runs of each point.")  # fmt: skip
@CONFIDENCE
def sensitivity(
    common: Common,
    over: str | None,
    ranges: tuple[str, ...],
    search: str,
    objective: str | None,
    min_gain: float | None,
    arm: str | None,
    replicates: int,
    confidence: float | None,
) -> None:
    """Scale each input of SCENARIO and find where "it pays" turns into "it does not".

    A factor of 1 is the scenario as stated. Exit codes: 0 answered, 2 wrong scenario, 5 disk full, 130 interrupted.
    """
    loaded = common.load()
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
    asked = Study(who, inputs, stated, searched, metric, min_gain or 1.0, replicates, confidence or 0.95)
    answer = study.sensitivity(loaded, asked, common.work())
    page = write_dashboard(answer.run_dir)
    if common.as_json:
        click.echo(json.dumps(answer.document | {"run_dir": str(answer.run_dir)}, allow_nan=False))
        return
    click.echo(sensitivity_text(answer.document, colour_wanted()))
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
        there = f"there are {', '.join(arms) or 'none'}{did_you_mean(arm, arms)}"
        raise ScenarioError(f"no such arm beside the baseline: {arm}; {there}")
    if arm is None and len(arms) != 1:
        raise ScenarioError(f"choose one of {', '.join(arms)}" if arms else "the scenario has no arm but its baseline")
    return arm or arms[0]


def _objective(scenario: Scenario) -> str:
    return "output_throughput" if scenario.workload.arrivals.kind == "closed" else OPEN_LOOP_OBJECTIVES[0]
