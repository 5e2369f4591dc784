"""The sentence on what the prefix cache found."""

from types import SimpleNamespace
from typing import Any

from sim.report.prefix_cache import prefix_cache_line


def results(rates: dict[str, list[float]], shared: float) -> Any:
    def level(cell: int, arm: str, metric: str) -> SimpleNamespace:
        return SimpleNamespace(mean=shared if metric == "prefix_cache_shared_rate" else rates[arm][cell])

    return SimpleNamespace(arms=tuple(rates), done=(0, 1), level=level)


def test_hit_rates_stand_beside_what_is_shared() -> None:
    line = " ".join(prefix_cache_line(results({"plain": [0.92, 0.92], "eagle3": [0.4, 0.91]}, 0.94)).split())
    assert line == "Prefix cache, share of prompt tokens found: plain 92 %, eagle3 40 % to 91 % (94 % are shared)"


def test_nothing_is_said_where_nothing_is_shared() -> None:
    assert prefix_cache_line(results({"plain": [0.0, 0.0]}, 0.0)) == ""
