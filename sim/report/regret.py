"""What K rules cost, over all loads of a results folder: read from `regret.csv`, for the terminal and the dashboard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sim.report.axis import Cell, say_value
from sim.report.reader import Results
from sim.report.wording import clean, listed, metric_name, number

METRICS = ("output_throughput", "mean_tpot_ms")
AGAINST = ("oracle", "best_fixed")
#: How to get what is missing.
NO_ORACLE = "no oracle among the arms: add one with draft_length: {kind: oracle}, or sweep: {regret: true}"


@dataclass(frozen=True, slots=True)
class Regret:
    """One row of `regret.csv`; shares, negative when the arm is better than its reference."""

    share: float
    low: float | None
    high: float | None
    reference: str


@dataclass(frozen=True)
class RuleRow:
    """One arm at one operating point.

    Attributes:
        arm, rule: who, and how it picks K.
        k_mean, k_switches: drafts per request and step, and changes of K, mean over replicates.
        regrets: by reference, `oracle` or `best_fixed`.
    """

    arm: str
    rule: str
    k_mean: float | None
    k_switches: float | None
    regrets: Mapping[str, Regret]


def metric_of(results: Results) -> str | None:
    """The metric that regret is shown for: throughput, unless the load prescribes it somewhere; None without any."""
    if not len(results.regret):
        return None
    cells = results.regret.groupby("metric")["cell_id"].nunique()
    return max(METRICS, key=lambda metric: int(cells.get(metric, 0)))


def rule_rows(results: Results, cell: Cell, metric: str) -> list[RuleRow]:
    """Every arm with regret at one operating point, in the order of the file."""
    table = results.regret
    chosen = table[(table["cell_id"] == cell.cell_id) & (table["metric"] == metric)]
    return [_rule_row(str(arm), rows) for arm, rows in chosen.groupby("arm", sort=False)]


def _rule_row(arm: str, rows: pd.DataFrame) -> RuleRow:
    first = rows.iloc[0]
    regrets = {
        str(row["against"]): Regret(
            float(row["regret"]), _number(row["ci_low"]), _number(row["ci_high"]), str(row["reference"])
        )
        for _, row in rows.iterrows()
    }
    return RuleRow(arm, str(first["rule"]), _number(first["k_mean"]), _number(first["k_switches"]), regrets)


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def regret_lines(results: Results) -> Iterator[str]:
    """A table per operating point for the terminal, at most 100 columns; nothing when K is no choice.

    One sentence instead where every arm has a fixed K and there is no oracle: then there is little to tell.
    """
    metric = metric_of(results)
    if metric is None:
        return
    if set(results.regret["rule"]) <= {"fixed", "plain"}:
        yield _best_fixed(results, metric)
        return
    words = {"output_throughput": "output throughput", "mean_tpot_ms": "mean TPOT"}[metric]
    yield f"Choosing K: regret, the share of {words} lost in % ({results.ci}; negative: gained)"
    head = f"{'arm':<21}{'rule':<17}{'mean K':>7}{'switches':>9}{'against oracle':>22}{'against best fixed':>22}"
    yield f"  {head}"
    found_oracle = False
    for cell in results.done:
        rows = rule_rows(results, cell, metric)
        found_oracle |= any("oracle" in row.regrets for row in rows)
        yield from _heading(results, cell, rows)
        yield from map(_line, rows)
    if not found_oracle:
        yield f"  {NO_ORACLE}"


def _best_fixed(results: Results, metric: str) -> str:
    """Which fixed K is best where, and what the other arms lose to it."""
    best: dict[str, list[Cell]] = {}
    lost: dict[str, list[float]] = {}
    for cell in results.done:
        for row in rule_rows(results, cell, metric):
            regret = row.regrets["best_fixed"]
            cells = best.setdefault(regret.reference, [])
            cells += [] if cell in cells else [cell]
            lost.setdefault(row.arm, []).append(regret.share)
    everywhere = len(best) == 1
    winners = [f"{clean(arm)}{'' if everywhere else f' ({len(cells)} loads)'}" for arm, cells in best.items()]
    losers = [f"{clean(arm)} {100 * min(shares):.0f} to {100 * max(shares):.0f} %" for arm, shares in lost.items()]
    text = (
        f"Best fixed K: {listed(winners)}{' at every load' if everywhere else ''}; lost against it: {', '.join(losers)}"
    )
    return f"{text} ({metric_name(metric)})"


def _heading(results: Results, cell: Cell, rows: list[RuleRow]) -> Iterator[str]:
    """The operating point, and which fixed K is best there."""
    best = next((row.regrets["best_fixed"].reference for row in rows if "best_fixed" in row.regrets), "")
    where = f"at {results.axis.short} {say_value(cell.x)}, " if results.axis else ""
    if best:
        yield f"  {where}best fixed: {clean(best)[:40]}"


def _line(row: RuleRow) -> str:
    shares = [_share(row.regrets.get(against)) for against in AGAINST]
    facts = f"{number(row.k_mean) if row.k_mean is not None else '-':>7}{number(row.k_switches):>9}"
    return f"  {clean(row.arm)[:20]:<21}{row.rule[:16]:<17}{facts}{shares[0]:>22}{shares[1]:>22}"


def _share(regret: Regret | None) -> str:
    """`3.1 (2.0, 4.2)`."""
    if regret is None:
        return "-"
    low, high = regret.low, regret.high
    digits = 1 if abs(regret.share) < 1 else 0
    ci = f" ({100 * low:.{digits}f}, {100 * high:.{digits}f})" if low is not None and high is not None else ""
    return f"{100 * regret.share:.{digits}f}{ci}"
