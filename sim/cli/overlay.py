"""`specsim validate --measured`: the user's load tests laid over the simulated curves."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from sim.bench_results.base import MeasuredPoint
from sim.bench_results.read import read_results
from sim.cli.colour import colour_wanted
from sim.errors import ScenarioError
from sim.experiment.executor import local_executor
from sim.experiment.overlay import overlay
from sim.report.overlay import overlay_json, overlay_text
from sim.scenario.load import load_scenario
from sim.scenario.suggestions import no_such_arm

Lengths = Literal["scenario", "measured"]

#: Replicates unless the scenario has fewer: enough to see chance.
REPLICATES = 3

MEASURED = click.option(
    "--measured",
    multiple=True,
    metavar="ARM=FILES",
    help="Results of vllm bench serve, AIPerf or GuideLLM for an arm; a pattern such as c*.json, may be repeated.",
)


def overlay_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the comparison with load tests."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the text."),
        click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor."),
        click.option("--replicates", type=click.IntRange(1), help=f"Per load test; default {REPLICATES} at most."),
        click.option("--lengths", type=click.Choice(["scenario", "measured"]), default="scenario", show_default=True,
                     help="Lengths of requests: the scenario's, or the measured means."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field of it."),
        click.option("--scenario", metavar="SCENARIO", help="A file, or a shipped scenario; for --measured."),
        MEASURED,
    ):  # fmt: skip
        command = option(command)
    return command


def run_overlay(
    measured: Sequence[str],
    scenario: str | None,
    overrides: Sequence[str],
    lengths: Lengths,
    replicates: int | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Simulate the measured loads, compare, and say what would explain the difference."""
    if scenario is None:
        raise click.UsageError("--measured needs --scenario: what was measured?")
    loaded = load_scenario(scenario, overrides)
    points = measured_points(measured, list(loaded.scenario.arms))
    times = replicates or min(REPLICATES, loaded.scenario.sweep.replicates)
    with local_executor(jobs) as executor:
        found = overlay(loaded, points, executor, replicates=times, take_lengths=lengths == "measured")
    if as_json:
        click.echo(overlay_json(found))
        return
    for note in loaded.notes:
        click.echo(note, err=True)
    colour = colour_wanted()
    click.echo(overlay_text(found, colour), nl=False, color=colour)


def measured_points(arguments: Sequence[str], arms: Sequence[str]) -> dict[str, list[MeasuredPoint]]:
    """Points by arm from `ARM=FILES`; the arm may be left out where there is one only.

    Raises:
        ScenarioError: unknown arms, a pattern without files, or everything wrong with all files.
    """
    files, wrong = dict[str, list[Path]](), list[str]()
    for argument in arguments:
        arm, sign, pattern = argument.partition("=")
        if not sign and len(arms) > 1:
            raise click.UsageError(f"--measured {argument}: which arm? write ARM=FILES; there are {', '.join(arms)}")
        arm, pattern = (arm, pattern) if sign else (arms[0], argument)
        path = Path(pattern)
        found = (
            [path] if path.is_file() else sorted(each for each in path.parent.glob(path.name or "?") if each.is_file())
        )
        wrong += [f"--measured {argument}: {text}" for text in no_such_arm([arm], arms)]
        if not found:
            folder = f"; {pattern} is a folder, write its files: {path / '*.json'}" if path.is_dir() else ""
            wrong.append(f"--measured {argument}: no such file{folder}")
        files.setdefault(arm, []).extend(found)
    try:
        points = read_results([path for paths in files.values() for path in paths])
    except ScenarioError as error:
        raise ScenarioError("\n".join([*wrong, str(error)])) from None
    if wrong:
        raise ScenarioError("\n".join(wrong))
    return {arm: [point for path in dict.fromkeys(paths) for point in points[path]] for arm, paths in files.items()}
