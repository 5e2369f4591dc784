"""GuideLLM's `benchmarks.json`: one point per entry of `benchmarks`, statistics of successful requests.

Source: vllm-project/guidellm `benchmark/schemas/generative/metrics.py`, `schemas/request_stats.py`,
`scheduler/strategies.py`. Its inter-token latency is (last - first token) / (output tokens - 1) of a request: TPOT
here, averaged over *tokens*. Its "time per output token" contains TTFT and is not read. Request latency is in seconds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.bench_results.base import Fields, Format, Load, MeasuredPoint, Times

TOOL = "GuideLLM"
#: Their metric -> (ours, factor to milliseconds).
_TIMES = {
    "time_to_first_token_ms": ("ttft", 1.0), "inter_token_latency_ms": ("tpot", 1.0), "request_latency": ("e2el", 1e3),
}  # fmt: skip
#: Gaps this regular stand for a constant rate: their coefficient of variation is 1 %.
_CONSTANT = 10_000.0
#: A limit bites from this share of it on; cut-off requests matter from this share of the finished ones on.
_BITES, _CUT = 0.8, 0.05


def recognises(document: Mapping[str, Any]) -> bool:
    """Whether there is a list of benchmarks with metrics."""
    found = document.get("benchmarks")
    return isinstance(found, list) and all(isinstance(each, Mapping) and "metrics" in each for each in found)


def read(fields: Fields, source: str) -> list[MeasuredPoint]:
    """All points of a document; saturation tests without a stated load are left out, as sweeps begin with one."""
    benchmarks = fields.data["benchmarks"]
    if not benchmarks:
        fields.wrong("benchmarks", "empty: nothing was measured")
    found = [
        _point(fields.inside(f"benchmarks.{index}", entry), f"{source}[{index}]")
        for index, entry in enumerate(benchmarks)
    ]
    return [point for point in found if point is not None]


def _point(entry: Fields, source: str) -> MeasuredPoint | None:
    strategy = _strategy(entry)
    if strategy is None or _kind(strategy) == "throughput":
        return None
    load, metrics = _load(strategy), entry.section("metrics")
    if metrics is None:
        return None
    times = Times()
    for theirs, (ours, scale) in _TIMES.items():
        for stat, value in _statistics(metrics, theirs).items():
            times.add(f"{stat}_{ours}_ms", None if value is None else value * scale)
    if not times.metrics:
        metrics.wrong("inter_token_latency_ms", "no latencies of successful requests")
    totals = metrics.section("request_totals")
    completed = None if totals is None else totals.count("successful", least=1)
    failed = totals.count("errored", required=False) if totals is not None else 0
    inputs, outputs, throughput = (
        _statistics(metrics, name, required=True)["mean"]
        for name in ("prompt_token_count", "output_token_count", "output_tokens_per_second")
    )
    if load is None or not (completed and inputs and outputs and throughput):
        return None
    _refuse_held_back(strategy, load, times.metrics)
    notes = [*times.notes, "GuideLLM weights TPOT by tokens", *_left_out(entry, strategy, totals)]
    notes += [f"{failed} requests failed and are not simulated"] if failed else []
    values = {"output_throughput": throughput, **times.metrics}
    return MeasuredPoint(source, TOOL, load, completed, inputs, outputs, values, tuple(notes))


def _refuse_held_back(strategy: Fields, load: Load, times: Mapping[str, float]) -> None:
    """A limit on requests in flight is always stated; where it bites, the client queues (Little's law)."""
    most, latency = strategy.number("max_concurrency", required=False), times.get("mean_e2el_ms")
    if load.request_rate and most and latency and load.request_rate * latency / 1e3 > _BITES * most:
        strategy.wrong("max_concurrency", f"{load.request_rate * latency / 1e3:.0f} requests in flight at a limit of "
                       f"{most:g}: the client kept a queue of its own, which is not simulated")  # fmt: skip


def _left_out(entry: Fields, strategy: Fields, totals: Fields | None) -> Iterator[str]:
    """What the figures leave out and the simulation, which is measured from start to end, does not."""
    config = entry.section("config", required=False)
    for phase in ("warmup", "cooldown"):
        found = None if config is None else config.data.get(phase)
        if isinstance(found, Mapping) and (found.get("percent") or found.get("value")):
            yield f"GuideLLM leaves the {phase} out, the simulated test does not"
    if ramp := strategy.number("rampup_duration", required=False):
        yield f"users start over {ramp:g} s, simulated ones at once"
    done, cut = (None if totals is None else totals.number(key, required=False) for key in ("successful", "incomplete"))
    if done and cut and cut > _CUT * done:
        yield f"{cut:g} of {done + cut:g} requests were cut off at the end and not measured: long ones are missing"


def _strategy(entry: Fields) -> Fields | None:
    """Under `config`; under `args` or `scheduler` in earlier versions."""
    for place in ("config", "args", "scheduler"):
        section = entry.section(place, required=False)
        found = None if section is None else section.section("strategy", required=False)
        if found is not None:
            return found
    entry.wrong("config.strategy", "missing; the load cannot be guessed")
    return None


def _kind(strategy: Fields) -> object:
    return strategy.data.get("kind") or strategy.data.get("type_")


def _load(strategy: Fields) -> Load | None:
    kind = _kind(strategy)
    if kind == "synchronous":
        return Load(1)
    if kind == "concurrent":
        users = strategy.count("streams", least=1)
        return None if users is None else Load(users)
    shapes = {"constant": _CONSTANT, "poisson": 1.0}
    if kind in shapes:
        rate = strategy.positive("rate")
        return None if rate is None else Load(None, rate, shapes[str(kind)])
    strategy.wrong("kind", f"found {kind!r}; known: synchronous, concurrent, constant, poisson")
    return None


def _statistics(metrics: Fields, name: str, required: bool = False) -> dict[str, float | None]:
    """Mean, median and p99 over successful requests."""
    block = metrics.section(name, required)
    done = None if block is None else block.section("successful")
    if done is None:
        return {"mean": None}
    tail = done.section("percentiles", required=False)
    return {
        "mean": done.number("mean"),
        "median": done.number("median", required=False),
        "p99": None if tail is None else tail.number("p99", required=False),
    }


FORMAT = Format(TOOL, "benchmarks.json", recognises, read)
