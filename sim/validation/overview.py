"""`results/validation/README.md`: all suites on one page; what was fitted, what predicted, what cannot be checked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.validation.acceptance import DataSet
from sim.validation.acceptance_report import targets
from sim.validation.gates import gates
from sim.validation.headlines import (
    Cloud,
    Headline,
    acceptance_clouds,
    acceptance_headlines,
    physics_clouds,
    physics_headlines,
    score_clouds,
    server_headlines,
    speedup_headlines,
)
from sim.validation.physics import Report
from sim.validation.scores import Gate, Score
from sim.validation.server_suite import ServerSuite, server_groups, server_suite_gates
from sim.validation.servers import ServerRow
from sim.validation.shipped import notes
from sim.validation.speedup import Speedups
from sim.validation.speedup_gates import speedup_gates
from sim.validation.speedup_report import speedup_groups
from sim.validation.steps import StepErrors
from sim.validation.suite_page import NO_PICTURES, Pictures, gate_table, page, shown, summary_table
from sim.validation.trust import DOUBTFUL, Check, lines, server_checks, speedup_checks, trust_table, verdict

#: Groups of figures that are this far off on average are listed as gaps, per cent.
_GAP = 8.0

_TITLE = "# Validation: how right is it, and for what?"

_INTRODUCTION = """Written by `specsim validate all --data DIR`; a suite alone: `specsim validate
physics|acceptance|server|speedup --data DIR`. Any folder of the same form is scored the same way. Pages:
[physics](physics.md), [acceptance](acceptance.md), [server](server.md), [speedup](speedup.md).
"""

_TRUST = f"""## Can I trust it for my case?

Mean error, and the worst, by batch or concurrency; `-`: nobody measured it. **Bold**: above {DOUBTFUL:g} %. A row was
checked for the models and prompts of its sources only; *fitted to some of them* says which costs of the engine are not
predictions there. Without a row of yours, [measure your own](../../docs/right-for-my-server.md).
"""


class SuiteSummary(NamedTuple):
    """What the overview shows of a suite.

    Attributes:
        headlines, clouds: what its pictures are drawn from.
        checks: what its table of trust is made of.
        advisory: rows that were run and count for nothing.
    """

    name: str
    gates: tuple[Gate, ...]
    groups: tuple[tuple[str, Sequence[Score]], ...] = ()
    not_run: int = 0
    headlines: tuple[Headline, ...] = ()
    clouds: tuple[Cloud, ...] = ()
    checks: tuple[Check, ...] = ()
    advisory: int = 0


def of_physics(report: Report, steps: Sequence[StepErrors], servers: Sequence[ServerRow]) -> SuiteSummary:
    """Gates on mean errors."""
    found = tuple(
        Gate(g.name, g.limit_percent, None if g.found is None else g.found.mape) for g in gates(report, steps, servers)
    )
    headlines = tuple(physics_headlines(report, steps, _limits(found)))
    return SuiteSummary("physics", found, headlines=headlines, clouds=tuple(physics_clouds(report)))


def of_acceptance(sets: Sequence[DataSet]) -> SuiteSummary:
    """Gates on errors in per cent, or differences of correlations."""
    found = tuple(Gate(t.name, t.limit, t.found, "") for t in targets(sets))
    headlines = tuple(acceptance_headlines(sets, _limits(found)))
    return SuiteSummary("acceptance", found, headlines=headlines, clouds=tuple(acceptance_clouds(sets)))


def of_server(suite: ServerSuite) -> SuiteSummary:
    """Recorded runs and whole servers."""
    found, groups = tuple(server_suite_gates(suite)), tuple(server_groups(suite))
    scores = [score for _, own in groups for score in own]
    return SuiteSummary(
        "server", found, groups, len(suite.not_run), tuple(server_headlines(suite, _limits(found))),
        tuple(score_clouds(scores)), tuple(server_checks(suite)),
    )  # fmt: skip


def of_speedup(suite: Speedups, shares: Sequence[Score]) -> SuiteSummary:
    """Published comparisons."""
    found, groups = tuple(speedup_gates(suite, shares)), tuple(speedup_groups(suite, shares))
    return SuiteSummary(
        "speedup", found, groups, len(suite.not_run), tuple(speedup_headlines(suite, _limits(found))),
        tuple(score_clouds(suite.scores)), tuple(speedup_checks(suite)), len(suite.advisory),
    )  # fmt: skip


def _limits(found: Iterable[Gate]) -> dict[str, float]:
    return {gate.name: gate.limit for gate in found}


def render_overview(suites: Sequence[SuiteSummary], pictures: Pictures = NO_PICTURES) -> str:
    """The whole page: what to trust comes first."""
    checked = lines(check for suite in suites for check in suite.checks)
    return page(
        _TITLE,
        verdict(checked) if checked else "",
        shown(pictures, "overview-errors"),
        _TRUST + "\n" + trust_table(checked) if checked else "",
        shown(pictures, "overview-pairs"),
        _INTRODUCTION,
        "## Targets\n\n" + "\n\n".join(_gates(suite) for suite in suites),
        "## Gaps\n\n" + _gaps(suites),
        notes(),
    )


def _gates(suite: SuiteSummary) -> str:
    known = [gate for gate in suite.gates if gate.met is not None]
    reached = sum(bool(gate.met) for gate in known)
    rows = f", {suite.not_run} rows not run (with reasons on its page)" if suite.not_run else ""
    rows += f", {suite.advisory} advisory rows apart" if suite.advisory else ""
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
