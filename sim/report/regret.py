"""What K rules cost, over all loads of a results folder: read from `regret.csv`, for the terminal and the dashboard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sim.report.axis import Cell, say_value
from sim.report.reader import Results
from sim.report.wording import clean, number

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
    """The metric that regret is shown for: throughput, unless the load prescribes it; None without any regret."""
    known = set(results.regret["metric"]) if len(results.regret) else set()
    return next((metric for metric in METRICS if metric in known), None)


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
    """A table per operating point for the terminal, at most 100 columns; nothing when K is no choice."""
    metric = metric_of(results)
    if metric is None:
        return
    words = {"output_throughput": "output throughput", "mean_tpot_ms": "mean TPOT"}[metric]
    yield f"Choosing K: regret, the share of {words} lost against the reference ({results.ci}; negative: gained)"
    head = f"{'arm':<20}{'rule':<18}{'mean K':>7}{'switches':>9}{'against oracle':>16}{'against best fixed':>19}"
    yield f"  {'':<10}{head}"
    found_oracle = False
    for cell in results.done:
        label = say_value(cell.x) if results.axis else ""
        for row in rule_rows(results, cell, metric):
            found_oracle |= "oracle" in row.regrets
            yield _line(label, row)
            label = ""
    if not found_oracle:
        yield f"  {NO_ORACLE}"


def _line(label: str, row: RuleRow) -> str:
    shares = [_share(row.regrets.get(against)) for against in AGAINST]
    best = row.regrets.get("best_fixed")
    name = f" {clean(best.reference)[:17]}" if best else ""
    facts = f"{number(row.k_mean) if row.k_mean is not None else '-':>7}{number(row.k_switches):>9}"
    return f"  {label[:9]:<10}{clean(row.arm)[:19]:<20}{row.rule[:17]:<18}{facts}{shares[0]:>16}{shares[1]:>11}{name}"


def _share(regret: Regret | None) -> str:
    return "-" if regret is None else f"{100 * regret.share:.1f} %"
