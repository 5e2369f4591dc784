"""`specsim run`: all arms of a scenario on the same requests, results and a dashboard."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sim.experiment.files import StorageError
from sim.experiment.plan import narrowed
from sim.experiment.quick import quick_overrides
from sim.experiment.results import load
from sim.experiment.run import Interrupted, Progress
from sim.experiment.run import run as run_experiment
from sim.report.dashboard import write_dashboard
from sim.report.terminal import summary_text
from sim.scenario.cells import cell_scenarios
from sim.scenario.load import LoadedScenario, load_scenario

PARTIAL, INTERRUPTED = 4, 130


@click.command(name="run")
@click.argument("scenario")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Folder in which NAME/TIME-HASH is made.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field; may be repeated.")
@click.option("--seed", type=click.IntRange(0), help="Seed of all random numbers.")
@click.option("--replicates", type=click.IntRange(1), help="Runs per operating point and arm.")
@click.option("--arms", metavar="A,B", help="Run only these arms (and the baseline).")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes; default one per processor.")
@click.option("--quick", is_flag=True, help="A first look: two replicates, at most five values per varied field.")
@click.option("--dry-run", is_flag=True, help="Say what would be run and stop; nothing is written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the summary.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary, only the paths.")
@click.pass_context
def run(
    ctx: click.Context,
    scenario: str,
    output: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    replicates: int | None,
    arms: str | None,
    jobs: int | None,
    quick: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run all arms of SCENARIO (a file, or the name of a shipped one) on the same requests.

    Exit codes: 0 done, 2 wrong scenario, 4 some runs failed, 5 disk or memory full, 130 interrupted (what finished is
    kept).
    """
    settings = [*overrides, *([f"seed={seed}"] if seed is not None else [])]
    loaded = load_scenario(scenario, settings)
    if quick:
        loaded = load_scenario(scenario, [*settings, *quick_overrides(loaded.scenario)])
    chosen = None if arms is None else [name.strip() for name in arms.split(",")]
    if dry_run:
        click.echo(_plan_text(loaded, chosen, replicates, as_json))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = None if quiet else _progress()
    code = 0
    try:
        run_dir = run_experiment(loaded, output, arms=chosen, replicates=replicates, jobs=jobs, progress=progress)
    except Interrupted as interrupt:
        if interrupt.run_dir is None:
            raise
        run_dir, code = interrupt.run_dir, INTERRUPTED
    try:
        dashboard = write_dashboard(run_dir)
    except StorageError as error:
        raise StorageError(f"{error}; the results are complete: `specsim report {run_dir}` builds the page") from error
    status = load(run_dir).manifest["status"]
    _print(run_dir, dashboard, as_json, quiet, loaded)
    ctx.exit(code or (PARTIAL if status == "partial" else 0))


def _plan_text(loaded: LoadedScenario, arms: Sequence[str] | None, replicates: int | None, as_json: bool) -> str:
    """What would be run."""
    scenario = narrowed(loaded.scenario, arms, replicates)
    cells = cell_scenarios(scenario)
    runs = len(cells) * len(scenario.arms) * scenario.sweep.replicates
    facts: dict[str, object] = {
        "name": scenario.name,
        "arms": list(scenario.arms),
        "baseline": scenario.baseline,
        "replicates": scenario.sweep.replicates,
        "cells": [{"cell_id": cell.cell_id, "vary": dict(cell.vary)} for cell in cells],
        "runs": runs,
        "notes": list(loaded.notes),
    }
    if as_json:
        return json.dumps(facts, indent=1)
    lines = [f"{scenario.name}: {runs} runs = {len(cells)} operating points x {len(scenario.arms)} arms x "
             f"{scenario.sweep.replicates} replicates"]  # fmt: skip
    lines += [f"arms: {', '.join(scenario.arms)} (baseline {scenario.baseline})"]
    lines += [f"vary {key}: {', '.join(map(str, values))}" for key, values in scenario.sweep.vary.items()]
    return "\n".join([*lines, *loaded.notes])


def _progress() -> Progress | None:
    """One line on stderr that is overwritten; nothing when that is not a terminal or NO_COLOR is set."""
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        return None

    def show(done: int, total: int, label: str) -> None:
        end = "\r\x1b[K" if done == total else ""
        click.echo(f"\r\x1b[K{done}/{total} runs  {label}{end}", nl=False, err=True)

    return show


def _print(run_dir: Path, dashboard: Path, as_json: bool, quiet: bool, loaded: LoadedScenario) -> None:
    """The summary and, last, the paths written."""
    if as_json:
        click.echo(json.dumps(load(run_dir).document(), allow_nan=False))
        return
    if not quiet:
        for note in loaded.notes:
            click.echo(note, err=True)
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        click.echo(summary_text(run_dir, colour))
    click.echo(f"Wrote {run_dir}")
    click.echo(f"Wrote {dashboard}")
