"""Results folders against each other: the same arms at the same operating points, run with other code or settings.

Operating points are matched by what is varied in them, arms by name. Folders of the same seed met the same requests and
the same text, replicate by replicate, so differences are paired; otherwise they are those of independent samples
(Welch), whose intervals are wider.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from sim.errors import ResultsError
from sim.experiment.compare import (
    METRICS,
    Runs,
    depends_on_length,
    is_lower_better,
    is_offered_load,
    runs_by_arm,
    saturates,
)
from sim.experiment.results import Experiment, read_document
from sim.experiment.what_differs import what_differs
from sim.metrics.statistics import Interval, mean_interval, welch_interval
from sim.metrics.summary import Row

Vary = Mapping[str, object]

DIFFERENCE_COLUMNS = (
    "folder", "arm", "metric", "base_value", "value", "difference", "difference_low", "difference_high", "change",
    "change_low", "change_high", "num_base", "num", "paired", "verdict", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of one arm at one operating point, in a folder and in the base folder.

    Attributes:
        vary: the operating point.
        folder: which folder is compared with the base, counted from 1.
        arm: name in the folder; `base>arm` when the base has another name for it.
        metric: summary column.
        base_value, value: means over the replicates used.
        difference: `value` less `base_value`, in the metric's unit.
        change: relative, of geometric means: 0.05 is 5 % more; no estimate when a value is not positive.
        num_base, num: replicates used.
        paired: whether replicates are paired.
        verdict: `better`, `worse` (for columns that are neither: `higher`, `lower`), `same` or `not resolved`.
        note: why the verdict is withheld, or why the figures say little.
    """

    vary: Vary
    folder: int
    arm: str
    metric: str
    base_value: float
    value: float
    difference: Interval
    change: Interval | None
    num_base: int
    num: int
    paired: bool
    verdict: str
    note: str

    def row(self) -> dict[str, object]:
        """As a row of the table: `vary.*` first, intervals spread over three columns."""
        row: dict[str, object] = {f"vary.{key}": value for key, value in self.vary.items()}
        row |= {name: value for name, value in asdict(self).items() if name in DIFFERENCE_COLUMNS}
        for name, interval in (("difference", self.difference), ("change", self.change)):
            row[name] = interval.estimate if interval else None
            row[f"{name}_low"], row[f"{name}_high"] = (interval.low, interval.high) if interval else (None, None)
        return row


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything about folders B, C, ... against A.

    Attributes:
        differences: by folder, operating point, arm, metric.
        notes: what differs between the folders, and what could not be compared.
    """

    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is compared.

    Attributes:
        arms: (name in the base, name in the others); None = every arm that both have.
        metrics: summary columns.
        confidence: level of the intervals.
    """

    arms: Sequence[tuple[str, str]] | None = None
    metrics: Sequence[str] = METRICS
    confidence: float = 0.95


def compare_folders(folders: Sequence[Experiment], wanted: Wanted) -> Comparison:
    """Every folder against the first.

    Raises:
        ResultsError: a folder has no operating point or arm in common with the first.
    """
    base, *others = folders
    differences, notes = list[Difference](), list[str]()
    for number, other in enumerate(others, 1):
        found = _Pair(base, other, number, wanted)
        differences += found.differences()
        notes += found.notes()
    return Comparison(tuple(differences), tuple(notes))


def summary_metrics(folders: Sequence[Experiment]) -> list[str]:
    """Summary columns with numbers that every folder has."""
    columns = [
        {key: None for row in _rows(folder) for key, value in row.items() if _is_number(value)} for folder in folders
    ]
    return [name for name in columns[0] if all(name in others for others in columns) and name not in _IDENTITY]


_IDENTITY = ("replicate", "seed")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows(folder: Experiment) -> list[Row]:
    rows: list[Row] = read_document(folder.run_dir / "summary.json")["rows"]
    return rows


class _Pair:
    """One folder against the base."""

    def __init__(self, base: Experiment, other: Experiment, number: int, wanted: Wanted) -> None:
        self._folders, self._number, self._wanted = (base, other), number, wanted
        self._runs: tuple[Runs, Runs] = (runs_by_arm(_rows(base)), runs_by_arm(_rows(other)))
        self._cells = tuple(_cells(folder) for folder in self._folders)
        self._paired = base.manifest["seed"] == other.manifest["seed"]
        self._points = [point for point in self._cells[0] if point in self._cells[1]]
        self._arms = self._matching_arms()
        if not self._points:
            raise ResultsError(
                f"{other.run_dir}: no operating point in common with {base.run_dir}: "
                f"{_some(vary for _, vary in self._cells[0].values())} there, "
                f"{_some(vary for _, vary in self._cells[1].values())} here"
            )

    def _matching_arms(self) -> list[tuple[str, str]]:
        base, other = (list(folder.manifest["arms"]) for folder in self._folders)
        asked = self._wanted.arms
        arms = [(name, name) for name in base] if asked is None else list(asked)
        found = [(ours, theirs) for ours, theirs in arms if ours in base and theirs in other]
        if not found or (asked is not None and len(found) < len(asked)):
            raise ResultsError(
                f"{self._folders[1].run_dir}: arms to compare not found in both: {', '.join(base)} in the first "
                f"folder, {', '.join(other)} in this one; choose with --arms NAME or --arms NAME_IN_A:NAME_IN_B"
            )
        return found

    def differences(self) -> Iterator[Difference]:
        """In the order of the base's operating points and arms."""
        for point in self._points:
            for arms in self._arms:
                sides = self._sides(point, arms)
                for metric in self._wanted.metrics:
                    found = self._difference(point, arms, sides, metric)
                    if found is not None:
                        yield found

    def _sides(self, point: str, arms: tuple[str, str]) -> Runs:
        """Both sides' runs of a point, as if they were two arms of one cell."""
        cells = (self._cells[side][point][0] for side in (0, 1))
        return {
            (point, side): runs.get((cell, arm), {})
            for side, runs, cell, arm in zip(_SIDES, self._runs, cells, arms, strict=True)
        }

    def _difference(self, point: str, arms: tuple[str, str], sides: Runs, metric: str) -> Difference | None:
        base, other = (_samples(sides[point, side], metric) for side in _SIDES)
        if self._paired:
            common = sorted(set(base) & set(other))
            base, other = ({r: values[r] for r in common} for values in (base, other))
        if not base or not other:
            return None
        ours, theirs = list(base.values()), list(other.values())
        difference, change = self._interval(ours, theirs), self._change(ours, theirs)
        note = _caution(sides, point, metric)
        return Difference(
            vary=self._cells[0][point][1],
            folder=self._number,
            arm=arms[0] if arms[0] == arms[1] else f"{arms[0]}>{arms[1]}",
            metric=metric,
            base_value=math.fsum(ours) / len(ours),
            value=math.fsum(theirs) / len(theirs),
            difference=difference,
            change=change,
            num_base=len(ours),
            num=len(theirs),
            paired=self._paired,
            verdict="not resolved" if note else _verdict(change or difference, metric),
            note=note,
        )

    def _interval(self, base: Sequence[float], other: Sequence[float]) -> Interval:
        if self._paired:
            steps = [b - a for a, b in zip(base, other, strict=True)]
            return mean_interval(steps, self._wanted.confidence)
        return welch_interval(other, base, self._wanted.confidence)

    def _change(self, base: Sequence[float], other: Sequence[float]) -> Interval | None:
        if min(*base, *other) <= 0:
            return None
        logs = self._interval([math.log(value) for value in base], [math.log(value) for value in other])
        low, high = (None if end is None else math.expm1(end) for end in (logs.low, logs.high))
        return Interval(math.expm1(logs.estimate), low, high, logs.num)

    def notes(self) -> Iterator[str]:
        """What differs between the two folders besides their results."""
        base, other = self._folders
        if not self._paired:
            yield (
                f"{_name(other)}: seed {other.manifest['seed']} is not that of {_name(base)} "
                f"({base.manifest['seed']}): replicates are not paired, intervals are wider (Welch)"
            )
        yield f"{_name(other)}: {what_differs(base, other)}"
        for side, each in enumerate(self._folders):
            alone = [vary for point, (_, vary) in self._cells[side].items() if point not in self._cells[1 - side]]
            if alone:
                yield f"only in {_name(each)}, not compared: {_some(alone)}"
        for each in self._folders:
            if each.manifest.get("status") != "done":
                yield f"{_name(each)} is {each.manifest.get('status')}: some of its runs are missing"


_SIDES = ("base", "other")


def _cells(folder: Experiment) -> dict[str, tuple[str, Vary]]:
    """Operating point -> (cell id, what is varied in it)."""
    return {repr(sorted(cell["vary"].items())): (cell["cell_id"], cell["vary"]) for cell in folder.manifest["cells"]}


def _samples(runs: Mapping[int, Row], metric: str) -> dict[int, float]:
    found = {replicate: runs[replicate].get(metric) for replicate in sorted(runs)}
    return {replicate: float(value) for replicate, value in found.items() if _is_number(value)}  # type: ignore[arg-type]


def _verdict(difference: Interval, metric: str) -> str:
    """By the interval that is shown: of the relative change where there is one, else of the difference."""
    if difference.low is None or difference.high is None:
        return "not resolved"
    if difference.low == difference.high == 0.0:
        return "same"
    if difference.low <= 0.0 <= difference.high:
        return "not resolved"
    rises = difference.low > 0.0
    if metric not in METRICS:
        return "higher" if rises else "lower"
    return "better" if rises != is_lower_better(metric) else "worse"


def _caution(sides: Runs, point: str, metric: str) -> str:
    """Why a difference says nothing, if so."""
    if is_offered_load(sides, point, _SIDES, metric):
        return "repeats the offered load"
    if all(saturates(sides, point, side) for side in _SIDES) and depends_on_length(metric):
        return "both saturated: depends on the length of the run"
    return ""


def _name(folder: Experiment) -> str:
    return str(folder.run_dir)


def _some(points: Iterable[Vary], most: int = 4) -> str:
    texts = [", ".join(f"{key} = {value}" for key, value in vary.items()) or "one point" for vary in points]
    return "; ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
