"""`specsim breakeven`: where speculation stops (or starts) paying, found by searching, with intervals."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from sim.cli.running import PARTIAL, names, progress
from sim.experiment.axes import AXES, axis_of
from sim.experiment.executor import local_executor
from sim.experiment.plan import narrowed
from sim.experiment.questions import Answer, Search, all_questions, equal_batch, search
from sim.experiment.results import load
from sim.report.dashboard import write_dashboard
from sim.report.questions import answers_text
from sim.scenario.load import LoadedScenario, load_scenario
from sim.scenario.schema import Objective


class RangeType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """`1:1024`: two numbers."""

    name = "LOW:HIGH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """The two ends; a usage error when they are none."""
        if isinstance(value, tuple):
            return value
        try:
            low, high = map(float, str(value).split(":"))
        except ValueError:
            self.fail(f"found {value!r}; allowed: LOW:HIGH, such as 1:1024", param, ctx)
        return low, high


@click.command(name="breakeven")
@click.argument("scenario")
@click.option("--over", metavar="AXIS", default=None,
              help=f"One of {', '.join(AXES)}, or a dotted key. Default: concurrency, then request rate.")  # fmt: skip
@click.option("--range", "limits", type=RangeType(), help="Where to look; nothing is said about anything outside.")
@click.option("--objective", "objectives", multiple=True, type=click.Choice(get_args(Objective)), metavar="METRIC",
              help="What has to be better; may be repeated.")  # fmt: skip
@click.option("--min-gain", type=click.FloatRange(0, 100, min_open=True), help="Speed-up that counts as paying.")
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), help="Of all intervals.")
@click.option("--half-width", type=click.FloatRange(0, 10, min_open=True),
              help="Add replicates until intervals are this narrow, relative to the crossing.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(0, 10, min_open=True), help="How closely to bracket a crossing.")
@click.option("--replicates", type=click.IntRange(2), help="Replicates of the first round.")
@click.option("--max-replicates", type=click.IntRange(2), help="Stop adding replicates here.")
@click.option("--arms", metavar="A,B", help="Only these arms (and the baseline).")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field; may be repeated.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Folder in which NAME/TIME-HASH is made, one per question.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor.")
@click.option("--resume", is_flag=True, help="Take up the latest killed search of this very question.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the summary.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the answers and paths.")
@click.pass_context
def breakeven(
    ctx: click.Context,
    scenario: str,
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
    overrides: tuple[str, ...],
    output: Path,
    jobs: int | None,
    resume: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find where the arms of SCENARIO stop (or start) paying, adding points and replicates until it is clear.

    Without --over three questions are answered: at equal step batch (closed form), at equal concurrency and at equal
    request rate. Exit codes: 0 answered, 2 wrong scenario, 4 some runs failed, 5 disk full, 130 interrupted.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loaded = _narrowed(load_scenario(scenario, overrides), arms)
    stated: dict[str, Any] = {"min_gain": min_gain, "confidence": confidence, "half_width": half_width}
    stated |= {"tolerance": tolerance, "max_replicates": max_replicates, "objectives": list(objectives) or None}
    settings = {key: value for key, value in stated.items() if value is not None}
    how = Search(output, settings, replicates, partial(local_executor, jobs), None if quiet else progress(), resume)
    if over is None:
        batch, answers = all_questions(loaded, limits, how)
    else:
        answers = [search(loaded, axis_of(over), limits, how)]
        batch = equal_batch(loaded) if over == "concurrency" else {}
    pages = [write_dashboard(answer.run_dir) for answer in answers]
    click.echo(_json(batch, answers) if as_json else answers_text(batch, answers).rstrip())
    if not as_json:
        for answer, page in zip(answers, pages, strict=True):
            click.echo(f"Wrote {answer.run_dir}\nWrote {page}")
    complete = all(load(answer.run_dir).manifest["status"] == "done" for answer in answers)
    ctx.exit(0 if complete else PARTIAL)


def _narrowed(loaded: LoadedScenario, arms: str | None) -> LoadedScenario:
    scenario = narrowed(loaded.scenario, names(arms), None)
    return LoadedScenario(scenario, loaded.base_dir, loaded.source_text, loaded.notes)


def _json(batch: dict[str, Any], answers: list[Answer]) -> str:
    found = [{"axis": a.axis, "run_dir": str(a.run_dir), "breakeven": a.document} for a in answers]
    return json.dumps({"equal_batch": batch, "searches": found}, allow_nan=False)
