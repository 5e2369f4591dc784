"""The cells of a sweep: the grid over `sweep.vary`, each an un-varied scenario of its own."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from sim.errors import Problem, ScenarioError
from sim.scenario.checks import find
from sim.scenario.document import Node, Path, dotted, from_plain, problem_at
from sim.scenario.dump import plain_data, scenario_hash
from sim.scenario.findings import Context, Finding
from sim.scenario.known_keys import allowed_keys, places_of
from sim.scenario.overrides import put, split_key
from sim.scenario.schema import Scenario
from sim.scenario.suggestions import did_you_mean, found, one_of
from sim.scenario.validate import validate

#: Cells that one process lays out at a time, and cells of a whole sweep, which is then split into shards.
MAX_CELLS, MAX_SWEEP = 10_000, 1_000_000
#: Grids up to this size are checked as a whole when a scenario is loaded, larger ones when their cells are made.
CHECKED_CELLS = 500
_FIXED = ("schema_version", "name", "seed", "sweep", "baseline", "extends")


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid.

    Attributes:
        cell_id: the first 12 hex digits of the un-varied scenario's hash.
        vary: dotted key -> value at this point, in the order of `sweep.vary`.
        scenario: the scenario at this point; nothing is varied in it.
    """

    cell_id: str
    vary: Mapping[str, Any]
    scenario: Scenario


def num_cells(scenario: Scenario) -> int:
    """Number of cells, counted without making them; 1 when nothing is varied."""
    lengths = [len(values) for values in scenario.sweep.vary.values()]
    return max(lengths, default=1) if scenario.sweep.combine == "zip" else math.prod(lengths)


def cell_scenarios(scenario: Scenario, wanted: Callable[[int], bool] = lambda cell: True) -> list[Cell]:
    """Cells in grid order, the last key varying fastest.

    Args:
        scenario: the experiment.
        wanted: of a cell's number, counted from 0; the others are not made.

    Raises:
        ScenarioError: more than `MAX_CELLS` wanted cells, or a value that does not fit its field.
    """
    count = sum(map(wanted, range(num_cells(scenario))))
    if count > MAX_CELLS:
        raise ScenarioError(
            f"sweep.vary: {count} cells; allowed: at most {MAX_CELLS} at a time; split the sweep with --shard"
        )
    base = _unvaried(scenario)
    cells = []
    for vary in itertools.compress(_points(scenario), map(wanted, itertools.count())):
        varied, problems = _at_point(base, vary)
        if varied is None:
            raise ScenarioError(problems)
        cells.append(Cell(scenario_hash(varied)[:12], vary, varied))
    return cells


def _points(scenario: Scenario) -> Iterator[dict[str, Any]]:
    keys = list(scenario.sweep.vary)
    together = zip(*scenario.sweep.vary.values(), strict=True) if keys else iter([()])
    combined = together if scenario.sweep.combine == "zip" else itertools.product(*scenario.sweep.vary.values())
    for values in combined:
        yield dict(zip(keys, values, strict=True))


def _unvaried(scenario: Scenario) -> Node:
    data = plain_data(scenario)
    data["sweep"] |= {"vary": {}, "combine": "grid", "breakeven": None}
    return from_plain(data)


def _at_point(base: Node, vary: Mapping[str, Any]) -> tuple[Scenario | None, list[Problem]]:
    node = base
    for key, value in vary.items():
        try:
            node = put(node, split_key(node, key), from_plain(value))
        except ValueError as error:
            return None, [Problem("", key, str(error))]
    return validate(node)


def check_sweep(
    scenario: Scenario,
    base_dir: FilePath,
    root: Node,
    broken: frozenset[str] = frozenset(),
    wrong: frozenset[str] = frozenset(),
) -> tuple[Scenario, list[Problem]]:
    """Check every varied key and value, and put the values in canonical form (`8k` becomes 8000).

    Args:
        scenario: valid apart from `sweep.vary`.
        base_dir: where relative file names start.
        root: the data with positions.
        broken: sections that are stand-ins, about which nothing is to be concluded.
        wrong: sections whose keys cannot be judged, because something in them was wrong; then no combinations can.
    """
    base, vary, problems = _unvaried(scenario), dict(scenario.sweep.vary), list[Problem]()
    known = {finding.message for finding in find(Context(scenario, base_dir), broken)}
    for key in scenario.sweep.vary:
        if split_key(base, key)[0] in wrong:
            continue
        unknown = _wrong_key(base, key)
        if unknown is not None:
            problems.append(problem_at(root, ("sweep", "vary", key), unknown, key=True))
            continue
        results = [_check_value(base, {key: value}, base_dir, known, broken) for value in vary[key]]
        for index, (_, messages) in enumerate(results):
            problems += [problem_at(root, ("sweep", "vary", key, index), message) for message in messages]
        vary[key] = tuple(value for value, _ in results)
        if scenario.sweep.combine == "grid":
            problems += _stated_twice(root, key, vary[key])
    canonical = scenario.model_copy(update={"sweep": scenario.sweep.model_copy(update={"vary": vary})})
    if problems or wrong:
        return canonical, problems
    return canonical, _check_grid(canonical, base, base_dir, root, known)


def _stated_twice(root: Node, key: str, values: Sequence[Any]) -> Iterator[Problem]:
    """Values that are there already; the same operating point would be run and counted twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            message = f"stands here twice: {found(value)}; state every value once"
            yield problem_at(root, ("sweep", "vary", key, index), message)


def _wrong_key(base: Node, key: str) -> str | None:
    """Why a dotted key cannot be varied."""
    path = split_key(base, key)
    if path[0] in _FIXED:
        return f"{path[0]} cannot be varied"
    parent = base.find(path[:-1])
    if base.find(path) is not None:
        return None
    allowed = allowed_keys(base.plain(), path[:-1]) or list(parent.items if parent else ())
    if parent is not None and (path[-1] in allowed or isinstance(path[-1], int)):
        return None
    depth = next(n for n in range(len(path) + 1) if base.find(path[: n + 1]) is None)
    words = allowed_keys(base.plain(), path[:depth]) or list((base.find(path[:depth]) or base).items)
    return f"names no field: {dotted(path[: depth + 1])}{_hint(path, depth, words)}"


def _hint(path: Path, depth: int, words: list[str]) -> str:
    places = places_of(str(path[-1]))
    elsewhere = f"; did you mean {places[0]}?" if places else ""
    return did_you_mean(path[depth], words) or elsewhere or f"; {one_of(words)}"


def _check_value(
    base: Node, vary: Mapping[str, Any], base_dir: FilePath, known: set[str], broken: frozenset[str]
) -> tuple[Any, list[str]]:
    """The value in canonical form, and what is wrong with it."""
    ((key, value),) = vary.items()
    varied, problems = _at_point(base, vary)
    if varied is None:
        path = dotted(split_key(base, key))
        return value, [p.message if p.key == path else f"{p.key}: {p.message}" for p in problems]
    errors = [f for f in find(Context(varied, base_dir), broken) if not f.is_note and f.message not in known]
    written = from_plain(plain_data(varied)).find(split_key(base, key))
    return (written.plain() if written else value), [_at_value(finding, value) for finding in errors]


def _at_value(finding: Finding, value: Any) -> str:
    return f"with {found(value)}: {dotted(finding.path)}: {finding.message}"


def _check_grid(scenario: Scenario, base: Node, base_dir: FilePath, root: Node, known: set[str]) -> list[Problem]:
    """Combinations of values, each of which is right alone."""
    path: Path = ("sweep", "vary")
    count = num_cells(scenario)
    if count > MAX_SWEEP:
        return [problem_at(root, path, f"makes {count} cells; allowed: at most {MAX_SWEEP}", key=True)]
    if len(scenario.sweep.vary) < 2 or count > CHECKED_CELLS:
        return []
    points = list(_points(scenario))
    for index, vary in enumerate(points):
        if vary in points[:index]:
            return [problem_at(root, path, f"makes this point twice: {_told(vary)}", key=True)]
        varied, problems = _at_point(base, vary)
        errors = find(Context(varied, base_dir)) if varied else []
        messages = [str(problem) for problem in problems]
        messages += [f"{dotted(f.path)}: {f.message}" for f in errors if not f.is_note and f.message not in known]
        if messages:
            return [problem_at(root, path, f"at {_told(vary)}: {messages[0]}", key=True)]
    return []


def _told(vary: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in vary.items())
