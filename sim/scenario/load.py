"""From a file, a shipped name or a mapping to a checked `Scenario`: every problem at once, every note kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import Problem, ScenarioError
from sim.scenario.cells import check_sweep
from sim.scenario.checks import find
from sim.scenario.document import Node, from_plain, problem_at
from sim.scenario.files import find_file, read_bytes, read_scenario
from sim.scenario.findings import Context, Finding
from sim.scenario.overrides import apply_overrides, expand_shorthands
from sim.scenario.pasted import translate
from sim.scenario.schema import Scenario
from sim.scenario.validate import validate, without_broken_parts

MAX_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario and where it came from.

    Attributes:
        scenario: checked, every default filled in.
        base_dir: where its relative file names start.
        source_text: the file as written; empty for a mapping.
        notes: keys without effect and other remarks, each as `file:line:column: key: remark`.
    """

    scenario: Scenario
    base_dir: Path
    source_text: str
    notes: tuple[str, ...]


def load_scenario(path_or_shipped_name: str, overrides: Sequence[str] = ()) -> LoadedScenario:
    """Load a scenario file, or a shipped scenario by its name.

    Args:
        path_or_shipped_name: such as `my/scenario.yaml` or `quickstart`.
        overrides: `a.b=c` arguments, laid over the file in order; values are YAML.

    Raises:
        ScenarioError: with all problems there are.
    """
    path = find_file(path_or_shipped_name, Path())
    name = path_or_shipped_name if Path(path_or_shipped_name) == path else path.name
    root, problems = read_scenario(path, name)
    if isinstance(root.value, dict) and "name" not in root.items:
        root = root.with_items({"name": Node(_slug(path.stem), root.mark), **root.items})
    text = read_bytes(path, name).decode("utf-8")
    return _finish(root, problems, overrides, path.parent, text)


def load_mapping(
    mapping: Mapping[str, Any], base_dir: Path | None = None, overrides: Sequence[str] = ()
) -> LoadedScenario:
    """The same for a scenario built in Python; `base_dir` (default: the current folder) is where file names start.

    Raises:
        ScenarioError: with all problems there are.
    """
    return _finish(expand_shorthands(from_plain(mapping)), [], overrides, base_dir or Path(), "")


def _finish(root: Node, problems: list[Problem], overrides: Sequence[str], base_dir: Path, text: str) -> LoadedScenario:
    root, wrong_overrides = apply_overrides(root, tuple(overrides))
    pasted = translate(root)
    earlier = [*problems, *wrong_overrides, *pasted.problems]
    scenario, found = validate(pasted.root)
    notes = list(pasted.notes)
    if scenario is None:
        found += _problems_elsewhere(pasted.root, base_dir)
    else:
        scenario, more, remarks = _check(scenario, base_dir, pasted.root)
        found, notes = [*found, *more], [*notes, *remarks]
    if (all_problems := _tidy(earlier, found)) or scenario is None:
        raise ScenarioError(all_problems)
    return LoadedScenario(scenario, base_dir, text, tuple(notes))


def _check(scenario: Scenario, base_dir: Path, root: Node) -> tuple[Scenario, list[Problem], list[str]]:
    """Checks between values: the scenario in canonical form, the problems and the notes."""
    findings = find(Context(scenario, base_dir))
    problems = [_problem(finding, root) for finding in findings if not finding.is_note]
    notes = [str(_problem(finding, root)).splitlines()[0] for finding in findings if finding.is_note]
    canonical, in_sweep = check_sweep(scenario, base_dir, root)
    return canonical, [*problems, *in_sweep], notes


def _problems_elsewhere(root: Node, base_dir: Path) -> list[Problem]:
    """What can be said beyond single values when some of those are wrong."""
    scenario, broken, wrong = without_broken_parts(root)
    if scenario is None:
        return []
    findings = find(Context(scenario, base_dir), broken)
    in_sweep = [] if "sweep" in wrong else check_sweep(scenario, base_dir, root, broken, wrong)[1]
    return [*(_problem(finding, root) for finding in findings if not finding.is_note), *in_sweep]


def _problem(finding: Finding, root: Node) -> Problem:
    return problem_at(root, finding.path, finding.message, key=finding.at_key)


def _tidy(earlier: list[Problem], later: list[Problem]) -> list[Problem]:
    """In order of place; of several complaints about a value that could not even be read, the first; not too many."""
    unreadable = {problem.where for problem in earlier if _place(problem)}
    kept = [*earlier, *(problem for problem in later if problem.where not in unreadable)]
    files = list(dict.fromkeys(_place(problem)[:1] for problem in kept))
    unique = sorted(dict.fromkeys(kept), key=lambda problem: (files.index(_place(problem)[:1]), _place(problem)))
    if len(unique) > MAX_PROBLEMS:
        more = Problem("", "", f"... and {len(unique) - MAX_PROBLEMS} more problems")
        return [*unique[:MAX_PROBLEMS], more]
    return unique


def _place(problem: Problem) -> tuple[Any, ...]:
    """(file, line, column), or () for problems without a place."""
    match = re.fullmatch(r"(.*):(\d+):(\d+)", problem.where, re.DOTALL)
    return (match[1], int(match[2]), int(match[3])) if match else ()


def _slug(stem: str) -> str:
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip(".-") or "scenario")[:80]
