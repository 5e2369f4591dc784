"""What the prefix cache found, in one sentence, for the terminal and the page."""

from sim.report.reader import Results
from sim.report.wording import clean, percent


def prefix_cache_line(results: Results) -> str:
    """Share of the prompt tokens found, per arm, over all that was run; "" when prompts share nothing."""
    shared = [rate for arm in results.arms for rate in _levels(results, arm, "prefix_cache_shared_rate")]
    if not any(shared):
        return ""
    parts = [
        f"{clean(arm)} {_span(rates)}"
        for arm in results.arms
        if (rates := _levels(results, arm, "prefix_cache_hit_rate"))
    ]
    return f"Prefix cache, share of prompt tokens found: {', '.join(parts)} ({_span(shared)} are shared)"


def _levels(results: Results, arm: str, metric: str) -> list[float]:
    return [level.mean for cell in results.done if (level := results.level(cell, arm, metric))]


def _span(rates: list[float]) -> str:
    least, most = percent(min(rates)), percent(max(rates))
    return most if least == most else f"{least} to {most}"
