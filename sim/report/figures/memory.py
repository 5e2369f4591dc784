"""Panel 9: what fills the memory of a GPU, per arm, and how many KV tokens are left."""

from collections.abc import Mapping
from typing import Any

from sim.report.panel import Chart, Entry, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import MEMORY, figure
from sim.report.wording import listed, number, percent, plain

_DEFINITION = (
    "Bytes on each GPU of the tensor-parallel group. KV cache = gpu_memory_utilization x memory - weights - drafter "
    "weights - activation peak - CUDA context and graphs. A drafter with KV of its own adds layers to every token, "
    "so the same bytes hold fewer tokens; capacity in tokens is whole blocks."
)


def panel(results: Results) -> Panel | None:
    """One bar per arm, from the first finished run of each; None when no run left its memory budget."""
    budgets = {arm: budget for arm in results.arms if (budget := _budget(results, arm))}
    if not budgets:
        return None
    plot = figure(110 + 52 * len(budgets))
    for name, (words, color, _) in MEMORY.items():
        sizes = [parts(budget)[name] / 2**30 for budget in budgets.values()]
        if max(sizes) > 0.005:
            plot.add_bar(
                y=[plain(arm) for arm in budgets], x=sizes, orientation="h", name=words, marker={"color": color},
                hovertemplate=f"{words}<br>%{{y}}: %{{x:.2f}} GiB<extra></extra>", textfont={"color": "#ffffff"},
                text=[f"{number(tokens(b), 4)} tokens" for b in budgets.values()] if name == "kv_pool" else None,
                insidetextanchor="middle", textposition="inside",
            )  # fmt: skip
    plot.update_layout(
        barmode="stack", bargap=0.35, xaxis={"title": {"text": "GiB per GPU"}}, yaxis={"autorange": "reversed"},
        margin={"l": 90, "r": 16, "t": 8, "b": 48},
    )  # fmt: skip
    rows: list[list[Entry]] = [
        [arm, *(parts(budget)[name] / 2**30 for name in MEMORY), float(budget["kv_bytes_per_token"]), tokens(budget)]
        for arm, budget in budgets.items()
    ]
    head = ["arm", *(f"{words} (GiB)" for words, _, _ in MEMORY.values()), "KV bytes per token", "KV tokens"]
    view = View("", _finding(results.baseline, budgets), [Chart(plot)], Table(head, rows))
    reading = "Memory of one GPU; what is left for the KV cache bounds how many requests can run together."
    return Panel("memory", "Memory", [view], reading, _DEFINITION, key_colors=list(MEMORY.values()))


def _budget(results: Results, arm: str) -> Mapping[str, Any] | None:
    for cell in results.done:
        for detail in results.details(cell, arm)[:1]:
            if detail.get("memory"):
                found: Mapping[str, Any] = detail["memory"]
                return found
    return None


def parts(budget: Mapping[str, Any]) -> dict[str, float]:
    """Bytes by part; what `gpu_memory_utilization` leaves out counts as free."""
    known = {name: float(budget.get(name) or 0.0) for name in MEMORY if name != "unused"}
    return known | {"unused": max(0.0, float(budget.get("total") or 0.0) - sum(known.values()))}


def tokens(budget: Mapping[str, Any]) -> float:
    """KV capacity in tokens."""
    return float(budget.get("num_kv_blocks") or 0) * float(budget.get("block_size") or 0)


def _finding(baseline: str, budgets: Mapping[str, Mapping[str, Any]]) -> str:
    own = {arm: tokens(budget) for arm, budget in budgets.items()}
    if baseline not in own or len(own) == 1:
        return f"KV cache holds {listed([f'{number(count, 4)} tokens with {arm}' for arm, count in own.items()])}"
    base = own[baseline]
    groups: dict[float, list[str]] = {}
    for arm, count in own.items():
        groups.setdefault(count, []).append(arm)
    words = [f"{number(count, 4)} with {listed(arms)}" for count, arms in groups.items()]
    least = min(own.values())
    loss = f" ({percent(1 - least / base)} fewer)" if base > least else ""
    return (
        f"The KV cache holds {listed(words)} tokens{loss}"
        if len(groups) == 1
        else f"Room for KV tokens: {listed(words)}{loss}"
    )
