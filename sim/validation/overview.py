"""`results/validation/README.md`: all suites on one page; what was fitted, what predicted, what cannot be checked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.validation.acceptance_report import Target
from sim.validation.gates import Gate as PhysicsGate
from sim.validation.scores import Gate, Score
from sim.validation.shipped import notes
from sim.validation.suite_page import gate_table, page, summary_table

#: Groups of figures that are this far off on average are listed as gaps, per cent.
_GAP = 8.0

_INTRODUCTION = """# Validation: every claim, one command away

Written by `specsim validate all --data DIR`; a suite alone: `specsim validate physics|acceptance|server|speedup
--data DIR`. Any folder of the same form is scored the same way. Pages: [physics](physics.md),
[acceptance](acceptance.md), [server](server.md), [speedup](speedup.md).
"""


class SuiteSummary(NamedTuple):
    """What the overview shows of a suite."""

    name: str
    gates: tuple[Gate, ...]
    groups: tuple[tuple[str, Sequence[Score]], ...] = ()
    not_run: int = 0


def of_physics(gates: Iterable[PhysicsGate]) -> SuiteSummary:
    """Gates on mean errors."""
    found = [Gate(g.name, g.limit_percent, None if g.found is None else g.found.mape) for g in gates]
    return SuiteSummary("physics", tuple(found))


def of_acceptance(targets: Iterable[Target]) -> SuiteSummary:
    """Gates on errors in per cent, or differences of correlations."""
    return SuiteSummary("acceptance", tuple(Gate(t.name, t.limit, t.found, "") for t in targets))


def render_overview(suites: Sequence[SuiteSummary]) -> str:
    """The whole page."""
    return page(
        _INTRODUCTION,
        "## Targets\n\n" + "\n\n".join(_gates(suite) for suite in suites),
        "## Gaps\n\n" + _gaps(suites),
        notes(),
    )


def _gates(suite: SuiteSummary) -> str:
    known = [gate for gate in suite.gates if gate.met is not None]
    reached = sum(bool(gate.met) for gate in known)
    rows = f", {suite.not_run} rows not run (with reasons on its page)" if suite.not_run else ""
    head = f"### {suite.name}: {reached} of {len(known)} reached{rows}"
    return f"{head}\n\n{gate_table(suite.gates)}"


def _gaps(suites: Sequence[SuiteSummary]) -> str:
    """Groups that are off by more than `_GAP` on average, the worst first."""
    groups = [(f"{suite.name}: {name}", scores) for suite in suites for name, scores in suite.groups if scores]
    sized = sorted(groups, key=lambda group: -_mean(group[1]))
    wide = [group for group in sized if _mean(group[1]) > _GAP]
    return f"Groups with a mean error above {_GAP:g}.\n\n" + summary_table(wide)


def _mean(scores: Sequence[Score]) -> float:
    return sum(abs(score.error) for score in scores) / len(scores)
