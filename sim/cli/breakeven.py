"""`specsim breakeven`: where speculation stops (or starts) paying, found by searching, with intervals."""

import json
from typing import Any, get_args

import click

from sim.cli.arms import ARMS
from sim.cli.numbers import RangeType
from sim.cli.options import CONFIDENCE, MAX_REPLICATES, MIN_GAIN, Common, simulates
from sim.cli.running import exit_code
from sim.experiment.axes import AXES, axis_of
from sim.experiment.questions import Answer, Search, all_questions, equal_batch, search
from sim.experiment.run import Interrupted
from sim.report.dashboard import write_dashboard
from sim.report.questions import answers_text
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Objective


@click.command(name="breakeven")
@simulates(
    json="Print one JSON document instead of the summary.",
    quiet="No progress, only the answers and paths.",
    folder="Folder in which NAME/TIME-HASH is made, one per question.",
)
@click.option("--over", metavar="AXIS", default=None,
              help=f"One of {', '.join(AXES)}, or a dotted key. Default: concurrency, then request rate.")  # fmt: skip
@click.option("--range", "limits", type=RangeType(), help="Where to look; nothing is said about anything outside.")
@click.option("--objective", "objectives", multiple=True, type=click.Choice(get_args(Objective)), metavar="METRIC",
              help="What has to be better; may be repeated.")  # fmt: skip
@MIN_GAIN
@CONFIDENCE
@click.option("--half-width", type=click.FloatRange(0, 10, min_open=True),
              help="Add replicates until intervals are this narrow, relative to the crossing.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(0, 10, min_open=True), help="How closely to bracket a crossing.")
@click.option("--replicates", type=click.IntRange(2), help="Replicates of the first round.")
@MAX_REPLICATES
@ARMS
@click.option("--resume", is_flag=True, help="Take up the latest killed search of this very question.")
@click.pass_context
def breakeven(
    ctx: click.Context,
    common: Common,
    over: str | None,
    limits: tuple[float, float] | None,
    objectives: tuple[str, ...],
    min_gain: float | None,
    confidence: float | None,
    half_width: float | None,
    tolerance: float | None,
    replicates: int | None,
    max_replicates: int | None,
    arms: str | None,
    resume: bool,
) -> None:
    """Find where the arms of SCENARIO stop (or start) paying, adding points and replicates until it is clear.

    Without --over three questions are answered: at equal step batch (closed form), at equal concurrency and at equal
    request rate. Exit codes: 0 answered, 2 wrong scenario, 4 some runs failed, 5 disk full, 130 interrupted.
    """
    loaded = common.load(arms)
    stated: dict[str, Any] = {"min_gain": min_gain, "confidence": confidence, "half_width": half_width}
    stated |= {"tolerance": tolerance, "max_replicates": max_replicates, "objectives": list(objectives) or None}
    settings = {key: value for key, value in stated.items() if value is not None}
    how = Search(common.work(), settings, replicates, resume)
    try:
        batch, answers = _answers(loaded, over, limits, how)
    except Interrupted:
        click.echo("Interrupted; go on with the same command and --resume", err=True)
        raise
    pages = [write_dashboard(answer.run_dir) for answer in answers]
    click.echo(_json(batch, answers) if common.as_json else answers_text(batch, answers).rstrip())
    if not common.as_json:
        for answer, page in zip(answers, pages, strict=True):
            click.echo(f"Wrote {answer.run_dir}\nWrote {page}")
    ctx.exit(max(exit_code(answer.run_dir) for answer in answers))


def _answers(
    loaded: LoadedScenario, over: str | None, limits: tuple[float, float] | None, how: Search
) -> tuple[dict[str, Any], list[Answer]]:
    """The closed forms at equal batch and the searches along the axis asked for, or along both loads."""
    if over is None:
        return all_questions(loaded, limits, how)
    answers = [search(loaded, axis_of(over), limits, how)]
    return equal_batch(loaded) if over == "concurrency" else {}, answers


def _json(batch: dict[str, Any], answers: list[Answer]) -> str:
    found = [{"axis": a.axis, "run_dir": str(a.run_dir), "breakeven": a.document} for a in answers]
    return json.dumps({"equal_batch": batch, "searches": found}, allow_nan=False)
