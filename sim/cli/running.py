"""What the commands that simulate share: progress on stderr, the end of a run, and how it went as an exit code."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from sim.cli.colour import colour_wanted
from sim.experiment.files import StorageError
from sim.experiment.plan import WHOLE, Shard, estimate
from sim.experiment.remote import copy_to
from sim.experiment.results import load
from sim.experiment.rounds import Progress
from sim.experiment.run import Interrupted
from sim.report.dashboard import write_dashboard
from sim.report.terminal import summary_text
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario

PARTIAL, INTERRUPTED = 4, 130


def finish(
    make: Callable[[], Path], notes: Sequence[str], *, as_json: bool, quiet: bool, copy_url: str | None = None
) -> int:
    """Run, write the dashboard, print the summary and, last, the paths; returns the exit code."""
    code = 0
    try:
        run_dir = make()
    except Interrupted as interrupt:
        if interrupt.run_dir is None:
            raise
        run_dir, code = interrupt.run_dir, INTERRUPTED
    try:
        dashboard = write_dashboard(run_dir)
    except StorageError as error:
        raise StorageError(f"{error}; the results are complete: `specsim report {run_dir}` builds the page") from error
    _print(run_dir, dashboard, notes, as_json, quiet)
    if copy_url is not None:
        click.echo(f"Copied to {copy_to(run_dir, copy_url)}", err=True)
    if code == INTERRUPTED:
        click.echo(f"Interrupted; go on with: specsim sweep {run_dir} --resume", err=True)
    return code or exit_code(run_dir)


def exit_code(run_dir: Path) -> int:
    """0 when every run of a results folder is there, else 4."""
    return 0 if load(run_dir).manifest["status"] == "done" else PARTIAL


def _print(run_dir: Path, dashboard: Path, notes: Sequence[str], as_json: bool, quiet: bool) -> None:
    if as_json:
        click.echo(json.dumps(load(run_dir).document(), allow_nan=False))
        return
    if not quiet:
        for note in notes:
            click.echo(note, err=True)
        click.echo(summary_text(run_dir, colour_wanted()))
    click.echo(f"Wrote {run_dir}")
    click.echo(f"Wrote {dashboard}")


def progress() -> Progress | None:
    """One line on stderr that is overwritten; nothing when that is not a terminal or NO_COLOR is set."""
    if not colour_wanted(sys.stderr):
        return None
    start, first = time.monotonic(), list[int]()

    def show(done: int, total: int, label: str) -> None:
        first.append(done - 1)  # runs that a resumed sweep already had do not count for the rate
        rate = (done - first[0]) / max(1e-9, time.monotonic() - start)
        left = f"{rate:.1f}/s, {_duration((total - done) / rate)} left"
        end = "\r\x1b[K" if done == total else ""
        click.echo(f"\r\x1b[K{done}/{total} runs  {left}  {label}{end}", nl=False, err=True)

    return show


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_text(loaded: LoadedScenario, as_json: bool, shard: Shard = WHOLE, max_runs: int | None = None) -> str:
    """What would be run, about what it costs, and whether `max_runs` would refuse it."""
    scenario = loaded.scenario
    costs = estimate(scenario, loaded.base_dir, shard)
    facts: dict[str, object] = {
        "name": scenario.name,
        "arms": list(scenario.arms),
        "baseline": scenario.baseline,
        "replicates": scenario.sweep.replicates,
        "vary": {key: list(values) for key, values in scenario.sweep.vary.items()},
        "combine": scenario.sweep.combine,
        **costs._asdict(),
        "load": _load(scenario),
        **({} if max_runs is None else {"max_runs": max_runs, "refused": costs.runs > max_runs}),
        "notes": list(loaded.notes),
    }
    if as_json:
        return json.dumps(facts, indent=1)
    lines = [
        f"{scenario.name}: {costs.runs} runs = {costs.cells} operating points x {len(scenario.arms)} arms x "
        f"{scenario.sweep.replicates} replicates",
        f"about {costs.requests:,} requests, {_duration(costs.cpu_s)} of one processor, "
        f"{costs.num_bytes / 1e6:,.0f} MB on disk",
        f"arms: {', '.join(scenario.arms)} (baseline {scenario.baseline})",
    ]
    if max_runs is not None and costs.runs > max_runs:
        lines.append(f"would be refused: {too_many(costs.runs, max_runs)}")
    lines += [f"vary {key}: {_some(values)}" for key, values in scenario.sweep.vary.items()]
    lines += [f"everywhere {key}: {value}" for key, value in _load(scenario).items()]
    return "\n".join([*lines, *loaded.notes])


def _load(scenario: Scenario) -> dict[str, object]:
    """What sets the load of every point: where another field is varied it is easily overlooked."""
    arrivals = scenario.workload.arrivals
    keys = {
        f"workload.arrivals.{name}": name for name in ("max_concurrency", "request_rate", "max_concurrent_sessions")
    }
    stated = {key: getattr(arrivals, name, None) for key, name in keys.items() if key not in scenario.sweep.vary}
    return {key: value for key, value in stated.items() if value is not None}


def too_many(runs: int, max_runs: int) -> str:
    """Why a sweep is refused, and what to do."""
    return f"{runs:,} runs; allowed: at most --max-runs {max_runs:,}; raise it, or split with --shard"


def _some(values: Sequence[object]) -> str:
    """The values, the middle left out when there are many."""
    texts = [str(value) for value in values]
    shown = texts if len(texts) <= 16 else [*texts[:8], "...", *texts[-4:]]
    return ", ".join(shown) + (f" ({len(texts)} values)" if len(texts) > 16 else "")
