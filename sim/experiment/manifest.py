"""`manifest.json`: what was run, with which versions, and how every cell ended. No clock and no paths in it."""

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import sim
from sim.experiment.plan import WHOLE, Plan, Shard
from sim.experiment.task import Outcome, Task
from sim.scenario.cells import Cell
from sim.scenario.dump import scenario_hash
from sim.scenario.preset_report import preset_names

SCHEMA_VERSION = 1
_PACKAGES = ("numpy", "pyarrow", "pydantic", "simpy")


def manifest_document(
    plan: Plan, outcomes: Mapping[int, Outcome], warnings: Sequence[str], profile: Mapping[str, object]
) -> dict[str, object]:
    """The manifest of a run.

    Args:
        plan: all cells and runs.
        outcomes: what became of them, by index; missing = not run (interrupted).
        warnings: remarks on the scenario.
        profile: id and error of the cost profile.
    """
    scenario = plan.scenario
    states = [_cell_state(cell, mine, plan.tasks, outcomes) for cell, mine in _by_cell(plan)]
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "specsim",
        "tool_version": sim.__version__,
        "code": code_digest(),
        "git_rev": git_revision(),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "command": "specsim run scenario.resolved.yaml",
        "experiment": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": scenario_hash(scenario),
        "status": _status([str(state["state"]) for state in states], plan.shard),
        "shard": None if plan.shard == WHOLE else f"{plan.shard.part}/{plan.shard.parts}",
        "arms": list(scenario.arms),
        "baseline": scenario.baseline,
        "engine": list(dict.fromkeys(name for cell in plan.cells for name in preset_names(cell.scenario))),
        "verification": verification_of(plan.cells),
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


def _status(states: Sequence[str], shard: Shard) -> str:
    if "skipped" in states:
        return "interrupted"
    if set(states) != {"done"}:
        return "partial"
    return "done" if shard == WHOLE else "shard"


def _by_cell(plan: Plan) -> Iterator[tuple[Cell, range]]:
    """Every cell with the numbers of its tasks, which follow one another."""
    each = len(plan.tasks) // len(plan.cells)
    for number, cell in enumerate(plan.cells):
        yield cell, range(number * each, (number + 1) * each)


def _cell_state(
    cell: Cell, mine: Sequence[int], tasks: Sequence[Task], outcomes: Mapping[int, Outcome]
) -> dict[str, object]:
    """`done`, `partial` or `failed` with reasons, or `skipped` when a run of the cell never finished."""
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


@cache
def code_digest() -> str:
    """Hash of this package's code and data: two runs with the same one may be mixed."""
    root = Path(sim.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml", ".csv", ".json")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


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
