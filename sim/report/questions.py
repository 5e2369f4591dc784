"""The answers of a break-even search as text: one section per question, kept apart."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sim.report import crossings as be
from sim.report.reader import Results, load_results
from sim.report.terminal import break_even_lines, closed_form_text, wrapped
from sim.report.wording import clean, number

#: What is held equal in each search, and what that means.
_TITLES = {
    "concurrency": "At equal concurrency (closed loop: as many requests in flight for every arm)",
    "request_rate": "At equal request rate (open loop: the arms run at different batch sizes)",
}


class Found(Protocol):
    """One finished search."""

    @property
    def axis(self) -> str:
        """Name of the axis."""
        ...

    @property
    def run_dir(self) -> Path:
        """Its results folder."""
        ...


def answers_text(batch: Mapping[str, Mapping[str, Any]], answers: Sequence[Found]) -> str:
    """Every question with its answer.

    Args:
        batch: closed forms by arm at equal step batch; empty when that was not asked.
        answers: the searches.
    """
    lines = []
    if batch:
        lines += ["At equal step batch (closed form: decode steps alone, no prefill, no queue)"]
        lines += wrapped(closed_form_text(batch) or "there is none for these arms", "  ")
        lines += [""]
    for answer in answers:
        lines += [*_section(answer.axis, load_results(answer.run_dir)), ""]
    return "\n".join(line.rstrip() for line in lines)


def _section(axis: str, results: Results) -> Iterator[str]:
    replicates = results.manifest["replicates"]
    yield _TITLES.get(axis) or f"Over {results.axis.short if results.axis else axis}"
    if results.axis is None:
        return
    values = [cell.x for cell in results.slices[0].cells]
    yield f"  tested: {results.axis.span(values[0], values[-1], 'to')}, {len(values)} points x {replicates} replicates"
    for part in results.slices:
        yield from break_even_lines(results, results.axis, part, "  ")
        if axis == "request_rate":
            yield from _batches(results, part)


def _batches(results: Results, part: Any) -> Iterator[str]:
    """At the same request rate the faster arm holds fewer requests: both batch sizes at each crossing."""
    for arm in results.challengers:
        for objective in be.objectives(results)[:1]:
            for crossing in be.crossings(be.entry(results, arm, objective, part) or {}):
                ours, theirs = number(crossing["mean_running"]), number(crossing["baseline_mean_running"])
                yield f"    there {clean(arm)} runs {ours} requests at a time, {clean(results.baseline)} {theirs}"
