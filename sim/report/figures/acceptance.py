"""Panel 6: acceptance by draft position and tokens per step, pooled over all loads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import arm_styles, figure
from sim.report.wording import listed, number, percent, plain

_DEFINITION = (
    "Unconditional: share of drafts whose first i tokens were all accepted (vLLM's per-position acceptance rates). "
    "Conditional: share accepted at position i among those whose first i-1 tokens were accepted. A step that "
    "verified drafts emits its accepted drafts plus one bonus token; tokens per step count the bonus (vLLM's mean "
    "acceptance length and SGLang's spec_accept_length do too, TensorRT-LLM's forced length does not). Counted "
    "before trimming at the end of an output; steps without drafts are left out of the histogram. For token trees "
    "position i is depth i."
)


def panel(results: Results) -> Panel | None:
    """Rates and histogram of the speculating arms; None when no arm drafts."""
    pooled = {arm: counts for arm in results.arms if (counts := _pooled(results, arm)) is not None}
    if not pooled:
        return None
    styles = arm_styles(results)
    charts = [
        Chart(_rates(results, pooled), "By draft position (dotted: conditional)"),
        Chart(_histogram(results, pooled), "Tokens per verify step, bonus included"),
    ]
    view = View("", _finding(pooled), charts, _table(pooled))
    reading = "Pooled over all loads and replicates; acceptance belongs to the text and the drafter, not to the load."
    legend = [(arm, styles[arm]) for arm in pooled]
    return Panel("acceptance", "Acceptance", [view], reading, _DEFINITION, legend=legend)


def _pooled(results: Results, arm: str) -> NDArray[np.float64] | None:
    """Verify steps that accepted exactly 0, 1, ... K drafts, over all cells and replicates; None for plain arms."""
    details = [detail for cell in results.done for detail in results.details(cell, arm)]
    found = [counts for detail in details if (counts := histogram_of(detail)) is not None and len(counts) > 1]
    if not found:
        return None
    total = np.zeros(max(len(counts) for counts in found))
    for counts in found:
        total[: len(counts)] += counts
    return total if total.sum() > 0 else None


def histogram_of(detail: dict[str, Any]) -> list[float] | None:
    """Steps by number of accepted drafts, from `result.json`."""
    counts = (detail.get("acceptance") or {}).get("histogram")
    return [float(count) for count in counts] if counts else None


def _survival(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unconditional rate by position."""
    at_least = counts[::-1].cumsum()[::-1]
    rates: NDArray[np.float64] = at_least[1:] / at_least[0]
    return rates


def _conditional(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    before = np.concatenate([[1.0], rates[:-1]])
    conditional = np.full_like(rates, np.nan)
    np.divide(rates, before, out=conditional, where=before > 0)
    return conditional


def _rates(results: Results, pooled: dict[str, NDArray[np.float64]]) -> Any:
    styles, plot = arm_styles(results), figure(320)
    for arm, counts in sorted(pooled.items(), key=lambda item: -len(item[1])):  # short curves on top of long ones
        rates = _survival(counts)
        for kind, values, dash, hollow in (
            ("unconditional", rates, "solid", ""),
            ("conditional", _conditional(rates), "dot", "-open"),
        ):
            plot.add_scatter(
                x=np.arange(1, len(values) + 1), y=values, mode="lines+markers",
                name=plain(arm), legendgroup=plain(arm),
                line={"color": styles[arm].color, "width": 2, "dash": dash},
                marker={"size": 9, "symbol": styles[arm].symbol + hollow, "color": styles[arm].color},
                hovertemplate=f"<b>{plain(arm)}</b>, {kind}<br>position %{{x}}: %{{y:.1%}}"
                f"<br>n = {counts.sum():,.0f} steps<extra></extra>",
            )  # fmt: skip
    plot.update_layout(
        xaxis={"title": {"text": "Draft position"}, "dtick": 1 if max(map(len, pooled.values())) < 14 else None},
        yaxis={"range": [0, 1.03], "tickformat": ".0%", "nticks": 6},
        margin={"l": 52, "r": 12, "t": 8, "b": 48},
    )
    return plot


def _histogram(results: Results, pooled: dict[str, NDArray[np.float64]]) -> Any:
    styles, plot = arm_styles(results), figure(320)
    for arm, counts in pooled.items():
        plot.add_bar(
            x=np.arange(1, len(counts) + 1), y=counts / counts.sum(), name=plain(arm), legendgroup=plain(arm),
            marker={"color": styles[arm].color},
            hovertemplate=f"<b>{plain(arm)}</b><br>%{{x}} tokens in %{{y:.1%}} of steps"
            f"<br>n = {counts.sum():,.0f} steps<extra></extra>",
        )  # fmt: skip
    plot.update_layout(
        xaxis={
            "title": {"text": "Tokens per verify step"},
            "dtick": 1 if max(map(len, pooled.values())) < 14 else None,
        },
        yaxis={"tickformat": ".0%", "rangemode": "tozero", "nticks": 6},
        margin={"l": 52, "r": 12, "t": 8, "b": 48},
        bargap=0.25,
    )
    return plot


def mean_length(counts: NDArray[np.float64]) -> float:
    """Mean tokens per verify step, bonus included."""
    return 1 + float(np.arange(len(counts)) @ counts / counts.sum())


def _finding(pooled: dict[str, NDArray[np.float64]]) -> str:
    words = [f"{number(mean_length(counts))} tokens with {arm}" for arm, counts in list(pooled.items())[:4]]
    last = {arm: _survival(counts)[-1] for arm, counts in pooled.items()}
    worst = min(last, key=last.__getitem__)
    tail = f"only {percent(last[worst])}" if last[worst] < 0.25 else percent(last[worst])
    return f"A verify step emits {listed(words)}; {tail} of {worst}'s last draft tokens are accepted"


def _table(pooled: dict[str, NDArray[np.float64]]) -> Table:
    rows: list[list[Entry]] = []
    for arm, counts in pooled.items():
        rates = [1.0, *_survival(counts)]
        conditional = [None, *_conditional(_survival(counts))]
        for accepted, count in enumerate(counts):
            given = conditional[accepted]
            rows.append([arm, accepted, rates[accepted], None if given is None else float(given), float(count)])
    head = ["arm", "drafts accepted (i)", "P(at least i)", "P(i given i-1)", "steps that accepted exactly i"]
    return Table(head, rows)
