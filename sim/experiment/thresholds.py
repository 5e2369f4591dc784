"""Limits on how far a metric may move between two results folders: `p99_ttft_ms>+5%`, for pipelines.

A limit fails only when the whole confidence interval lies beyond it, so noise fails no pipeline; it holds when no
part of the interval does. Anything else is not resolved: more replicates would tell.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.errors import Problem, ScenarioError
from sim.experiment.differences import Difference
from sim.metrics.statistics import Interval
from sim.scenario.suggestions import did_you_mean

State = Literal["failed", "held", "not resolved"]

_LIMIT = re.compile(
    r"\s*(?P<metric>\w+)\s*(?P<sign>[<>])\s*(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<percent>%?)\s*"
)


@dataclass(frozen=True, slots=True)
class Limit:
    """Fail when the change of a metric lies beyond a bound.

    Attributes:
        text: as written.
        metric: summary column.
        above: fail above the bound; otherwise below it.
        bound: a share (0.05) when `relative`, else in the metric's unit.
        relative: of the relative change; otherwise of the difference.
    """

    text: str
    metric: str
    above: bool
    bound: float
    relative: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a limit says about one difference."""

    limit: Limit
    difference: Difference
    state: State


def parse_limits(texts: Iterable[str], metrics: Sequence[str]) -> tuple[Limit, ...]:
    """Limits as written on a command line.

    Args:
        texts: such as `p99_ttft_ms>+5%` (relative) or `mean_tpot_ms>0.5` (in the metric's unit).
        metrics: columns that there are.

    Raises:
        ScenarioError: every text that is no limit, and every unknown metric.
    """
    limits, problems = list[Limit](), list[Problem]()
    for text in texts:
        match = _LIMIT.fullmatch(text)
        if match is None:
            message = "allowed: METRIC>BOUND or METRIC<BOUND, such as p99_ttft_ms>+5% or mean_tpot_ms>0.5"
            problems.append(Problem("--fail-if", repr(text), message))
        elif match["metric"] not in metrics:
            hint = did_you_mean(match["metric"], metrics) or "; any numeric column of summary.csv will do"
            problems.append(Problem("--fail-if", repr(text), f"no such metric: {match['metric']}{hint}"))
        else:
            relative = bool(match["percent"])
            bound = float(match["bound"]) / (100.0 if relative else 1.0)
            limits.append(Limit(text.strip(), match["metric"], match["sign"] == ">", bound, relative))
    if problems:
        raise ScenarioError(problems)
    return tuple(limits)


def judge_limits(limits: Iterable[Limit], differences: Sequence[Difference]) -> list[Judgement]:
    """Every limit at every operating point and arm that has its metric.

    Raises:
        ScenarioError: a metric that has no value on both sides anywhere: nothing was checked.
    """
    found = [
        Judgement(limit, each, _state(limit, each))
        for limit in limits
        for each in differences
        if each.metric == limit.metric
    ]
    checked = {judgement.limit for judgement in found}
    unchecked = [limit for limit in limits if limit not in checked]
    if unchecked:
        raise ScenarioError(
            [Problem("--fail-if", repr(limit.text), "no run on both sides has this metric") for limit in unchecked]
        )
    return found


def _state(limit: Limit, found: Difference) -> State:
    interval = found.change if limit.relative else found.difference
    if found.note or interval is None or interval.low is None or interval.high is None:
        return "not resolved"
    low, high = _beyond(limit, interval)
    return "failed" if low > 0 else "held" if high <= 0 else "not resolved"


def _beyond(limit: Limit, interval: Interval) -> tuple[float, float]:
    """The interval of how far beyond the bound the change lies: positive is beyond."""
    low, high = (end if end is not None else math.nan for end in (interval.low, interval.high))
    return (low - limit.bound, high - limit.bound) if limit.above else (limit.bound - high, limit.bound - low)
