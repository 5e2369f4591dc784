"""What follows from finished runs: tables, comparisons, break-even points and the manifest of a results folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sim.experiment.answers import break_even_document, cost_caveats, cost_profile
from sim.experiment.compare import COMPARE_COLUMNS, Runs, compare_rows, runs_by_arm
from sim.experiment.files import csv_bytes, json_bytes, parquet_rows_bytes
from sim.experiment.manifest import manifest_document
from sim.experiment.plan import WHOLE, Plan
from sim.experiment.regret import REGRET_COLUMNS, regret_rows
from sim.experiment.store import RunFolder
from sim.experiment.task import OUTSIDE, Outcome, Task
from sim.metrics.summary import Row


@dataclass(frozen=True, slots=True)
class Finished:
    """All that is known when the last run has ended.

    Attributes:
        plan: what was to be run.
        outcomes: what became of it, by task; missing = not run (interrupted).
        notes: remarks on the scenario.
    """

    plan: Plan
    outcomes: Mapping[int, Outcome]
    notes: tuple[str, ...]


def write_results(folder: RunFolder, finished: Finished) -> None:
    """Everything but the runs' own files; the manifest last. At least one run must have a row."""
    plan, outcomes = finished.plan, finished.outcomes
    rows = [row for index in range(len(plan.tasks)) if (row := _row(outcomes, index)) is not None]
    runs, scenario = runs_by_arm(rows), plan.scenario
    _write_tables(folder, plan, rows, runs)
    folder.write("breakeven.json", json_bytes(_break_even(plan, runs, outcomes)))
    notes = [*finished.notes, *_extrapolated(plan.tasks, outcomes)]
    notes += cost_caveats(scenario, plan.base_dir, plan.cells, _context(outcomes))
    profile = cost_profile(scenario, plan.base_dir, plan.cells)
    document = manifest_document(plan, outcomes, notes, profile)
    folder.write("manifest.json", json_bytes(document))


def _break_even(plan: Plan, runs: Runs, outcomes: Mapping[int, Outcome]) -> Mapping[str, object]:
    if plan.shard != WHOLE:
        return {"axis": None, "arms": {}, "analytic": {}, "reason": "one shard of a sweep; merge all of them first"}
    return break_even_document(plan.scenario, plan.base_dir, plan.cells, runs, _context(outcomes))


def _write_tables(folder: RunFolder, plan: Plan, rows: Sequence[Row], runs: Runs) -> None:
    scenario = plan.scenario
    confidence = scenario.sweep.breakeven.confidence if scenario.sweep.breakeven else 0.95
    cells = [(cell.cell_id, cell.vary) for cell in plan.cells]
    compared = compare_rows(runs, cells, scenario.arms, scenario.baseline, confidence)
    columns = list(rows[0])
    folder.write("summary.csv", csv_bytes(rows, columns))
    folder.write("summary.parquet", parquet_rows_bytes(rows, columns))
    folder.write("summary.json", json_bytes({"schema_version": 1, "rows": list(rows)}))
    vary = [f"vary.{key}" for key in scenario.sweep.vary]
    folder.write("compare.csv", csv_bytes(compared, ["cell_id", *vary, *COMPARE_COLUMNS]))
    regrets = regret_rows(runs, cells, scenario.arms, confidence)
    if regrets:
        folder.write("regret.csv", csv_bytes(regrets, ["cell_id", *vary, *REGRET_COLUMNS]))


def _extrapolated(tasks: Sequence[Task], outcomes: Mapping[int, Outcome]) -> Iterator[str]:
    """One remark per arm with steps that the cost model had not been given."""
    for arm in dict.fromkeys(task.arm for task in tasks):
        finished = [outcomes[i] for i, task in enumerate(tasks) if task.arm == arm and _row(outcomes, i) is not None]
        shares = [outcome.extrapolated for outcome in finished]
        if any(shares):
            yield f"{arm}: {min(shares):.1%} to {max(shares):.1%} of the steps of a run {OUTSIDE}"


def _row(outcomes: Mapping[int, Outcome], index: int) -> Row | None:
    return outcomes[index].row if index in outcomes else None


def _context(outcomes: Mapping[int, Outcome]) -> float:
    """Mean context over the finished runs, in task order so that it does not depend on who finished first."""
    known = [outcomes[index].context_tokens for index in sorted(outcomes) if outcomes[index].row is not None]
    return sum(known) / len(known)
