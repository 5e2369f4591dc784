"""A measured operating point, whatever tool measured it, and the contract of this folder: one file per format."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.csv_table import Problems

#: Latencies and their statistics, named as in `summary.csv`: `mean_ttft_ms`.
TIMES, STATS = ("ttft", "tpot", "itl", "e2el"), ("mean", "median", "p99")
#: A throughput may differ by this from tokens / duration (tools cut warm-up and rounding differently).
_THROUGHPUT_TOLERANCE = 0.05
#: Requests in flight by Little's law, as a share of the stated concurrency: outside, a time is in another unit.
_IN_FLIGHT = (0.1, 3.0)
#: A first token takes at least one step; so does any other. Far below, TTFT is in another unit.
_LEAST_TTFT = 0.2


class Load(NamedTuple):
    """How requests were sent: so many at a time, or so many a second.

    Attributes:
        max_concurrency: requests in flight of a closed loop; None in an open one.
        request_rate: requests per second of an open loop; None in a closed one.
        burstiness: shape of the gamma distribution of the gaps, as in `vllm bench serve`; 1 = Poisson.
    """

    max_concurrency: int | None
    request_rate: float | None = None
    burstiness: float = 1.0

    def __str__(self) -> str:
        if self.max_concurrency is not None:
            return f"concurrency {self.max_concurrency}"
        shape = "" if self.burstiness == 1.0 else f" (burstiness {self.burstiness:g})"
        return f"{self.request_rate:g} requests/s{shape}"


@dataclass(frozen=True)
class MeasuredPoint:
    """One load test.

    Attributes:
        source: file, and which of its results.
        tool: what wrote it.
        load: how requests were sent.
        completed: requests that finished.
        mean_prompt_tokens, mean_output_tokens: of those.
        metrics: values by their names in `summary.csv`: `output_throughput`, `mean_tpot_ms`, ...
        notes: what a reader has to know.
        duration_s: length of the test; None where rates were not taken over all of it.
        drafts_per_step: draft tokens of a verify step; 0 where the server says that it drafted nothing, None where
            the tool does not say.
    """

    source: str
    tool: str
    load: Load
    completed: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    metrics: Mapping[str, float]
    notes: tuple[str, ...] = ()
    duration_s: float | None = None
    drafts_per_step: float | None = None

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """(key, message) of figures that cannot all be true, such as seconds under a name in milliseconds."""
        values = self.metrics
        for name in TIMES:
            median, tail = values.get(f"median_{name}_ms"), values.get(f"p99_{name}_ms")
            if median is not None and tail is not None and tail < median:
                yield f"p99_{name}_ms", f"{tail:g} lies below the median, {median:g}"
        ttft, tpot = values.get("mean_ttft_ms"), values.get("mean_tpot_ms")
        if ttft is not None and tpot is not None and ttft < _LEAST_TTFT * tpot:
            yield "mean_ttft_ms", f"{ttft:g} ms against {tpot:g} ms per further token: is one of them in another unit?"
        yield from self._against_totals()

    def _against_totals(self) -> Iterator[tuple[str, str]]:
        throughput = self.metrics.get("output_throughput")
        if throughput is None:
            return
        if self.duration_s is not None:
            found = self.completed * self.mean_output_tokens / self.duration_s
            if abs(found - throughput) > _THROUGHPUT_TOLERANCE * throughput:
                yield "output_throughput", f"{throughput:g}, but the output tokens / duration are {found:g} tokens/s"
        latency, users = self._mean_e2el_s(), self.load.max_concurrency
        if latency is None or users is None or self.completed < 2 * users:
            return
        in_flight = throughput / self.mean_output_tokens * latency
        if not _IN_FLIGHT[0] * users < in_flight < _IN_FLIGHT[1] * users:
            yield (
                "mean_tpot_ms",
                (
                    f"throughput x latency makes {in_flight:.3g} requests in flight, stated are {users}: "
                    "are times in another unit?"
                ),
            )

    def _mean_e2el_s(self) -> float | None:
        values = self.metrics
        if "mean_e2el_ms" in values:
            return values["mean_e2el_ms"] / 1e3
        if "mean_ttft_ms" in values and "mean_tpot_ms" in values:
            return (values["mean_ttft_ms"] + values["mean_tpot_ms"] * (self.mean_output_tokens - 1)) / 1e3
        return None


class Fields:
    """An object of a document whose values are asked for one by one; faults are collected under their dotted keys.

    Args:
        data: the object.
        problems: collects what is wrong.
        line: where the document begins.
        prefix: dotted key of the object.
    """

    def __init__(self, data: Mapping[str, Any], problems: Problems, line: int, prefix: str = "") -> None:
        self.data, self._problems, self._line, self._prefix = data, problems, line, prefix

    def wrong(self, key: str, message: str) -> None:
        """Something wrong with a value."""
        self._problems.add(self._line, f"{self._prefix}{key}", message)

    def section(self, key: str, required: bool = True) -> "Fields | None":
        """The object under a key; None when it is missing, which is a fault if it is required."""
        found = self.data.get(key)
        if isinstance(found, Mapping):
            return self.inside(key, found)
        if required or found is not None:
            self.wrong(key, "missing" if found is None else f"expected an object, found {found!r:.40}")
        return None

    def inside(self, key: str, data: Mapping[str, Any]) -> "Fields":
        """An object somewhere below this one."""
        return Fields(data, self._problems, self._line, f"{self._prefix}{key}.")

    def number(self, key: str, required: bool = True) -> float | None:
        """A finite number from 0 on; None when it is missing or null."""
        found = self.data.get(key)
        if found is None:
            if required:
                self.wrong(key, "missing")
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found < 0:
            self.wrong(key, f"expected a number from 0 on, found {found!r:.40}")
            return None
        return float(found)

    def positive(self, key: str, required: bool = True) -> float | None:
        """A finite number above 0."""
        found = self.number(key, required)
        if found == 0:
            self.wrong(key, "expected a number above 0, found 0")
            return None
        return found

    def count(self, key: str, required: bool = True, least: int = 0) -> int | None:
        """A whole number; tools write some as 20.0."""
        found = self.number(key, required)
        if found is not None and (not found.is_integer() or found < least):
            self.wrong(key, f"expected a whole number from {least} on, found {found:g}")
            return None
        return None if found is None else int(found)


class Times:
    """The latencies of a point; a 0 is what tools write where there was nothing to average, and is left out."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.notes: list[str] = []

    def add(self, name: str, value: float | None) -> None:
        """One statistic by its name in `summary.csv`."""
        if value == 0:
            self.notes.append(f"{name} is 0: nothing was measured, left out")
        elif value is not None:
            self.metrics[name] = value


class Format(NamedTuple):
    """How one tool writes its results.

    Attributes:
        tool: its name.
        file: the one of its files that is read.
        recognises: whether a document is its own.
        read: points of a document, given where it comes from; faults go to the collector.
    """

    tool: str
    file: str
    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Fields, str], list[MeasuredPoint]]
