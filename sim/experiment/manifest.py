"""`manifest.json`: what was run, with which versions, and how every cell ended. No clock and no paths in it."""

import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import sim
from sim.experiment.task import Outcome, Task
from sim.scenario.cells import Cell
from sim.scenario.dump import scenario_hash
from sim.scenario.schema import Scenario

SCHEMA_VERSION = 1
_PACKAGES = ("numpy", "pyarrow", "pydantic", "simpy")


def manifest_document(
    scenario: Scenario,
    cells: Sequence[Cell],
    tasks: Sequence[Task],
    outcomes: Mapping[int, Outcome],
    warnings: Sequence[str],
    profile: Mapping[str, object],
) -> dict[str, object]:
    """The manifest of a run.

    Args:
        scenario: as resolved.
        cells: all cells.
        tasks: all runs.
        outcomes: what became of them, by index; missing = not run (interrupted).
        warnings: remarks on the scenario.
        profile: id and error of the cost profile.
    """
    states = [_cell_state(cell, tasks, outcomes) for cell in cells]
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "specsim",
        "tool_version": sim.__version__,
        "git_rev": git_revision(),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "command": "specsim run scenario.resolved.yaml",
        "experiment": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": scenario_hash(scenario),
        "status": _status([str(state["state"]) for state in states]),
        "arms": list(scenario.arms),
        "baseline": scenario.baseline,
        "verification": verification_of(cells),
        "replicates": scenario.sweep.replicates,
        "confidence": scenario.sweep.breakeven.confidence if scenario.sweep.breakeven else 0.95,
        "percentile_method": "linear (NumPy)",
        "cost_profile": dict(profile),
        "warnings": list(warnings),
        "cells": states,
    }


def verification_of(cells: Sequence[Cell]) -> dict[str, dict[str, object]]:
    """By speculating arm: the rules that verify its drafts in any cell, and whether all of them are lossless."""
    found: dict[str, dict[str, object]] = {}
    for name in cells[0].scenario.arms:
        arms = [cell.scenario.arms[name] for cell in cells]
        rules = dict.fromkeys(arm.rule.kind for arm in arms if arm.speculates)
        if rules:
            found[name] = {"kinds": list(rules), "lossless": all(arm.lossless for arm in arms)}
    return found


def _status(states: Sequence[str]) -> str:
    if "skipped" in states:
        return "interrupted"
    return "done" if set(states) == {"done"} else "partial"


def _cell_state(cell: Cell, tasks: Sequence[Task], outcomes: Mapping[int, Outcome]) -> dict[str, object]:
    """`done`, `partial` or `failed` with reasons, or `skipped` when a run of the cell never finished."""
    mine = [index for index, task in enumerate(tasks) if task.cell_id == cell.cell_id]
    failures = [
        {"arm": tasks[i].arm, "replicate": tasks[i].replicate, "reason": outcomes[i].error.strip().splitlines()[-1]}
        for i in mine
        if i in outcomes and outcomes[i].row is None
    ]
    state: dict[str, object] = {"cell_id": cell.cell_id, "vary": dict(cell.vary), "state": "done"}
    if any(i not in outcomes for i in mine):
        state["state"] = "skipped"
    if failures:
        state["state"] = "failed" if len(failures) == len(mine) else "partial"
        state |= {"reason": failures[0]["reason"], "failures": failures}
    return state


def git_revision() -> str | None:
    """Commit of the checkout that the package lies in; None for an installed package."""
    root = Path(sim.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
