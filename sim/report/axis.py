"""What a sweep varies, and the operating points (cells) along it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

_PREFIX = "vary."
#: The first plural of a noun.
_ONE = re.compile(r"(request|token|draft)s\b")


@dataclass(frozen=True, slots=True)
class _Words:
    """How an axis is called: in a table, below a chart, and after a number."""

    short: str
    label: str
    noun: str


#: End of a dotted key -> its words.
_KNOWN = {
    "max_concurrency": _Words("concurrency", "Concurrency (requests in flight)", "concurrent requests"),
    "request_rate": _Words("request rate", "Request rate (requests per second)", "requests/s"),
    "rate_scale": _Words("rate scale", "Arrival rate (multiple of the recorded one)", ""),
    "prompt_tokens.value": _Words("prompt length", "Prompt length (tokens)", "prompt tokens"),
    "output_tokens.value": _Words("output length", "Output length (tokens)", "output tokens"),
    "num_speculative_tokens": _Words("K", "Drafts per step (K)", "drafts per step"),
    "acceptance.rate": _Words("acceptance", "Acceptance of one draft", ""),
    "what_if.acceptance": _Words("acceptance factor", "Acceptance of a draft (multiple of the stated one)", ""),
    "what_if.draft_time": _Words("draft-time factor", "Draft time (multiple of the cost model's)", ""),
    "what_if.verify_time": _Words("verify-time factor", "Verify time (multiple of the cost model's)", ""),
    "what_if.target_time": _Words("target-time factor", "Target time (multiple of the cost model's)", ""),
    "what_if.host_time": _Words("host-time factor", "Host time (multiple of the cost model's)", ""),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """The quantity on the x axis.

    Attributes:
        key: dotted scenario key, such as `workload.arrivals.max_concurrency`.
        numeric: False when the values are names (then nothing is drawn as a curve).
        in_step: other fields that change from point to point with it (`combine: zip`).
    """

    key: str
    numeric: bool
    in_step: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """Last part of the key."""
        return self.key.rsplit(".", 1)[-1]

    @property
    def _words(self) -> "_Words":
        for ending, words in _KNOWN.items():
            if f".{self.key}".endswith(f".{ending}"):
                return words
        name = self.leaf.replace("_", " ")
        return _Words(name, name.capitalize(), "")

    @property
    def short(self) -> str:
        """A few words, for tooltips and table heads."""
        return self._words.short

    @property
    def label(self) -> str:
        """For the axis of a chart."""
        others = [key.rsplit(".", 1)[-1] for key in self.in_step]
        return f"{self._words.label}, {', '.join(others)} in step" if others else self._words.label

    @property
    def noun(self) -> str:
        """What a number on the axis counts, as it follows the number."""
        return self._words.noun

    @property
    def analytic(self) -> bool:
        """Whether the closed form, which is a function of the batch size, can share this axis."""
        return self.leaf == "max_concurrency"

    def span(self, low: object, high: object, word: str) -> str:
        """`1 to 256 concurrent requests`, `rate scale 0.5 to 4`."""
        both = f"{say_value(low)} {word} {say_value(high)}"
        return f"{both} {self.noun}" if self.noun else f"{self.short} {both}"

    def say(self, value: object) -> str:
        """`64 concurrent requests`, `12 requests/s`, `acceptance rate 0.7`."""
        text = say_value(value)
        noun = _ONE.sub(r"\1", self.noun) if value == 1 else self.noun
        return f"{text} {noun}" if noun else f"{self.short} {text}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One operating point.

    Attributes:
        cell_id: name of its folder.
        x: value on the axis (a number, or a name), None without an axis.
        others: what else is varied, as text; "" when nothing else is.
        done: False when it failed or was skipped.
        reason: why it has no results, or which of its runs failed.
    """

    cell_id: str
    x: Any
    others: str
    done: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """The cells that differ along the axis only."""

    label: str
    cells: tuple[Cell, ...]


def say_value(value: object) -> str:
    """A number without superfluous digits, anything else as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if math.isfinite(value) and value == round(value):
        return f"{round(value):,}".replace(",", "\u202f")
    return f"{value:.4g}"


def sweep_axis(summary: pd.DataFrame, break_even: Mapping[str, Any], *, in_step: bool = False) -> Axis | None:
    """The break-even axis, else the first key with several values (numbers preferred); None when nothing varies.

    Args:
        summary: rows with columns `vary.KEY`.
        break_even: the document that may name the axis.
        in_step: whether all fields are varied together.
    """
    keys = [str(column)[len(_PREFIX) :] for column in summary.columns if str(column).startswith(_PREFIX)]
    every = [key for key in keys if in_step and summary[_PREFIX + key].nunique() > 1]
    wanted = break_even.get("axis")
    if isinstance(wanted, str) and wanted in keys:
        keys = [wanted]
    varied = [key for key in keys if summary[_PREFIX + key].nunique() > 1]
    if not varied:
        return None
    numeric = [key for key in varied if pd.api.types.is_numeric_dtype(summary[_PREFIX + key])]
    chosen = (numeric or varied)[0]
    return Axis(chosen, bool(numeric), tuple(key for key in every if key != chosen))


def order_cells(summary: pd.DataFrame, listed: Sequence[Mapping[str, Any]], axis: Axis | None) -> tuple[Cell, ...]:
    """Finished cells of the summary and failed ones of the manifest, along the axis, curves in the sweep's order."""
    first = summary.drop_duplicates("cell_id").to_dict("records")
    reasons = {str(entry.get("cell_id")): _failures(entry) for entry in listed}
    done = {
        str(row["cell_id"]): _cell({str(k): v for k, v in row.items()}, axis, reasons.get(str(row["cell_id"]), ""))
        for row in first
    }
    lost = [_lost_cell(entry, axis) for entry in listed if str(entry.get("cell_id")) not in done]
    cells = [*done.values(), *(cell for cell in lost if cell)]
    if axis is None or not axis.numeric:
        return tuple(cells)
    curves = {others: 0 if axis.in_step else rank for rank, others in enumerate(dict.fromkeys(c.others for c in cells))}
    drawn = (cell for cell in cells if isinstance(cell.x, int | float))
    return tuple(sorted(drawn, key=lambda cell: (curves[cell.others], cell.x)))


def _failures(entry: Mapping[str, Any]) -> str:
    """Which runs of a partly finished cell failed, and why."""
    failures = [f for f in entry.get("failures") or () if isinstance(f, Mapping)]
    groups: dict[str, list[str]] = {}
    for failure in failures:
        groups.setdefault(str(failure.get("reason")), []).append(f"{failure.get('arm')} run {failure.get('replicate')}")
    return "; ".join(
        f"{', '.join(runs[:3])}{' and more' if len(runs) > 3 else ''}: {why}" for why, runs in groups.items()
    )


def _cell(row: Mapping[str, Any], axis: Axis | None, reason: str) -> Cell:
    vary = {key[len(_PREFIX) :]: value for key, value in row.items() if key.startswith(_PREFIX)}
    return Cell(str(row["cell_id"]), *_place(vary, axis), done=True, reason=reason)


def _lost_cell(entry: Mapping[str, Any], axis: Axis | None) -> Cell | None:
    vary = entry.get("vary") or {}
    if entry.get("state") == "done" or not isinstance(vary, Mapping) or (axis and axis.key not in vary):
        return None
    reason = str(entry.get("reason") or entry.get("error") or entry.get("state") or "not run")
    return Cell(str(entry.get("cell_id")), *_place(vary, axis), done=False, reason=reason)


def _place(vary: Mapping[str, Any], axis: Axis | None) -> tuple[Any, str]:
    value = vary.get(axis.key) if axis else None
    others = {key: v for key, v in vary.items() if axis is None or key != axis.key}
    plain_value = getattr(value, "item", lambda: value)()
    return plain_value, others_label(others)


def others_label(vary: Mapping[str, Any]) -> str:
    """What is varied besides the axis, as text: `K = 3, tensor_parallel_size = 2`."""
    return ", ".join(f"{key.rsplit('.', 1)[-1]} = {say_value(value)}" for key, value in vary.items())
