"""`specsim compare`: results folders against each other, and limits for pipelines."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from sim.cli.arms import names
from sim.errors import Problem, ResultsError, ScenarioError
from sim.experiment.differences import DIFFERENCE_COLUMNS, Comparison, Wanted, compare_folders, summary_metrics
from sim.experiment.files import csv_bytes, finite, write_bytes
from sim.experiment.results import Experiment, load
from sim.experiment.thresholds import Judgement, Limit, judge_limits, parse_limits
from sim.report.differences import comparison_text
from sim.scenario.suggestions import did_you_mean

FAILED = 3
#: Metrics of the table when none are named.
_SHOWN = (
    "output_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms",
    "request_goodput", "usd_per_mtok_output",
)  # fmt: skip


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="A B [C ...]", type=click.Path(path_type=Path))
@click.option("--fail-if", "limits", multiple=True, metavar="LIMIT",
              help='"p99_ttft_ms>+5%" or "mean_tpot_ms>0.5": exit code 3 when an interval breaks it.')  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail also when a limit is not resolved.")
@click.option("--arms", metavar="X,Y:Z", help="Only these arms; Y:Z compares Y of A with Z of the others.")
@click.option("--metrics", metavar="M,N", help="Only these columns of summary.csv.")
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), default=0.95,
              show_default=True, help="Of all intervals.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="List also differences that are not resolved.")
@click.option("--csv", "table", type=click.Path(path_type=Path), help="Write every difference to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the table.")
@click.pass_context
def compare(
    ctx: click.Context,
    folders: tuple[Path, ...],
    limits: tuple[str, ...],
    strict: bool,
    arms: str | None,
    metrics: str | None,
    confidence: float,
    everything: bool,
    table: Path | None,
    as_json: bool,
) -> None:
    """Compare results folders B, C, ... with A: same arms, same operating points, other code or settings.

    Differences are paired by replicate when the seeds are the same. Exit codes: 0 done, 2 wrong usage, 3 a limit of
    --fail-if is broken beyond chance, 5 disk full.
    """
    if len(folders) < 2:
        raise click.UsageError("two results folders at least: specsim compare A B")
    opened = _open(folders)
    chosen, parsed = _read(opened, metrics, limits)
    found = compare_folders(opened, Wanted(_arms(arms), chosen, confidence))
    judgements = judge_limits(parsed, found.differences)
    if table is not None:
        write_bytes(table, _csv(found))
    if as_json:
        click.echo(_json(found, judgements, folders))
    else:
        click.echo(comparison_text(found, judgements, [str(folder) for folder in folders], everything))
    bad = ("failed", "not resolved") if strict else ("failed",)
    ctx.exit(FAILED if any(each.state in bad for each in judgements) else 0)


def _open(folders: Sequence[Path]) -> list[Experiment]:
    """All folders, or everything that is wrong with them."""
    opened, wrong = list[Experiment](), list[str]()
    for folder in folders:
        try:
            opened.append(load(folder))
        except ResultsError as error:
            wrong.append(str(error))
    if wrong:
        raise ResultsError("\n".join(wrong))
    return opened


def _read(
    opened: list[Experiment], metrics: str | None, limits: tuple[str, ...]
) -> tuple[list[str], tuple[Limit, ...]]:
    """Metrics to compare and limits, with everything that is wrong with either at once."""
    known = summary_metrics(opened)
    asked = names(metrics)
    unknown = [name for name in asked or () if name not in known]
    problems = [Problem("--metrics", repr(name), f"no such metric{did_you_mean(name, known)}") for name in unknown]
    parsed: tuple[Limit, ...] = ()
    try:
        parsed = parse_limits(limits, known)
    except ScenarioError as error:
        problems += error.problems
    if problems:
        raise ScenarioError(problems)
    chosen = asked or [name for name in _SHOWN if name in known]
    return list(dict.fromkeys([*chosen, *(limit.metric for limit in parsed)])), parsed


def _arms(text: str | None) -> list[tuple[str, str]] | None:
    """`x,y:z` as pairs of names."""
    if text is None:
        return None
    pairs = [name.partition(":") for name in names(text) or ()]
    return [(base, other or base) for base, _, other in pairs]


def _csv(found: Comparison) -> bytes:
    rows = [each.row() for each in found.differences]
    vary = dict.fromkeys(key for row in rows for key in row if key.startswith("vary."))
    return csv_bytes(rows, [*vary, *DIFFERENCE_COLUMNS])


def _json(found: Comparison, judgements: list[Judgement], folders: tuple[Path, ...]) -> str:
    limits = [
        {"limit": each.limit.text, "state": each.state, "difference": each.difference.row()} for each in judgements
    ]
    document = {
        "folders": [str(folder) for folder in folders],
        "differences": [each.row() for each in found.differences],
        "limits": limits,
        "notes": list(found.notes),
    }
    return json.dumps(finite(document), allow_nan=False)
