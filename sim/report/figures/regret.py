"""Panel: what each way of choosing K loses against the oracle and against the best fixed K."""

from collections.abc import Sequence

from sim.report.axis import Slice, say_value
from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.regret import NO_ORACLE, Regret, RuleRow, metric_of, rule_rows
from sim.report.style import arm_styles, figure
from sim.report.wording import listed, metric_name, percent, plain

_DEFINITION = (
    "Regret is the share of the reference's output throughput (or, where the load prescribes the throughput, of its "
    "speed per token) that an arm loses; negative when it gains. Pairs of replicates, with a t-interval on the "
    "logarithm of their ratio. The oracle knows which drafts will be accepted and picks the best K for the next step; "
    "the best fixed K is the best of the fixed arms of this load, chosen on the same runs. Mean K counts steps "
    "without drafts; switches are steps whose K differs from that of the step before."
)
_NAMES = {"oracle": "Against the oracle", "best_fixed": "Against the best fixed K"}


def panel(results: Results) -> Panel | None:
    """One view per combination of what else is varied; None when K is no choice."""
    metric = metric_of(results)
    if metric is None:
        return None
    views = [_view(results, part, metric) for part in results.slices]
    reading = f"Share of {metric_name(metric)} lost, mean over replicates with its {results.ci}. Lower is better."
    legend = [(arm, style) for arm, style in arm_styles(results).items() if arm in set(results.regret["arm"])]
    return Panel("regret", "Choosing K at run time", views, reading, _DEFINITION, "Where", legend=legend)


def _view(results: Results, part: Slice, metric: str) -> View:
    styles = arm_styles(results)
    plots = {against: figure(340) for against in _NAMES}
    rows: list[list[Entry]] = []
    found = [(cell, row) for cell in part.cells if cell.done for row in rule_rows(results, cell, metric)]
    for against, plot in plots.items():
        for arm in dict.fromkeys(row.arm for _, row in found):
            points = [(cell, regret) for cell, row in found if row.arm == arm and (regret := row.regrets.get(against))]
            low, high = ([_reach(regret, up) for _, regret in points] for up in (False, True))
            plot.add_bar(
                x=[say_value(cell.x) if results.axis else "" for cell, _ in points],
                y=[regret.share for _, regret in points], name=plain(arm), legendgroup=plain(arm),
                marker={"color": styles[arm].color},
                error_y={"type": "data", "symmetric": False, "array": high, "arrayminus": low, "thickness": 1},
                hovertemplate=f"<b>{plain(arm)}</b><br>%{{x}}: %{{y:.1%}} lost<extra></extra>",
            )  # fmt: skip
        title = results.axis.label if results.axis else ""
        plot.update_layout(
            barmode="group", xaxis={"type": "category", "title": {"text": title}}, yaxis={"tickformat": ".0%"},
            margin={"l": 52, "r": 12, "t": 8, "b": 48},
        )  # fmt: skip
    for cell, row in found:
        where = cell.x if cell.x is not None else ""
        rows.append([where, row.arm, row.rule, row.k_mean, row.k_switches, *_entries(row)])
    charts = [Chart(plots[against], words) for against, words in _NAMES.items() if _has(found, against)]
    head = [results.axis.short if results.axis else "", "arm", "rule", "mean K", "switches"]
    head += [f"{words} {end}" for words in ("oracle", "best fixed K") for end in ("regret", "low", "high")]
    notes = () if _has(found, "oracle") else (NO_ORACLE,)
    return View(part.label, _finding([row for _, row in found]), charts, Table(head, rows), notes)


def _has(found: Sequence[tuple[object, RuleRow]], against: str) -> bool:
    return any(against in row.regrets for _, row in found)


def _reach(regret: Regret, up: bool) -> float:
    """How far the interval reaches to one side."""
    end = regret.high if up else regret.low
    return 0.0 if end is None else abs(end - regret.share)


def _entries(row: RuleRow) -> list[Entry]:
    entries: list[Entry] = []
    for against in _NAMES:
        regret = row.regrets.get(against)
        entries += [regret.share, regret.low, regret.high] if regret else [None, None, None]
    return entries


def _finding(rows: list[RuleRow]) -> str:
    """The largest loss of every rule against the best reference there is."""
    against = "oracle" if any("oracle" in row.regrets for row in rows) else "best_fixed"
    worst: dict[str, float] = {}
    for row in rows:
        if row.rule not in ("fixed", "oracle", "plain") and against in row.regrets:
            worst[row.arm] = max(worst.get(row.arm, -1.0), row.regrets[against].share)
    words = [
        f"{arm} loses up to {percent(share)}" for arm, share in sorted(worst.items(), key=lambda item: item[1])[:4]
    ]
    reference = "the oracle" if against == "oracle" else "the best fixed K"
    return f"Against {reference} {listed(words)}" if words else "What a fixed K loses as the load changes"
