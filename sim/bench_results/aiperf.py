"""AIPerf's `profile_export_aiperf.json`: metrics as `{unit, avg, p50, p99, ...}`, the load under `input_config`.

Source: ai-dynamo/aiperf, "JSON Export Schema" of its documentation (units are authoritative), `config/phases.py`. Its
inter-token latency is (request latency - TTFT) / (output tokens - 1) of a request: TPOT here. Its inter-chunk latency
is ITL here.
"""

from collections.abc import Mapping
from typing import Any

from sim.bench_results.base import Fields, Format, Load, MeasuredPoint, Times

TOOL = "AIPerf"
#: Their metric -> ours; their statistic -> ours.
_TIMES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2el",
}
_STATS = {"avg": "mean", "p50": "median", "p99": "p99"}
_MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
_PER_SECOND = {"tokens/sec": 1.0, "tokens/s": 1.0}
_TOKENS = {"tokens": 1.0}
_REQUESTS = {"requests": 1.0}
#: Gaps this regular stand for a constant rate: their coefficient of variation is 1 %.
_CONSTANT = 10_000.0


def recognises(document: Mapping[str, Any]) -> bool:
    """Whether metrics are blocks with a unit."""
    block = document.get("output_token_throughput") or document.get("request_latency")
    return isinstance(block, Mapping) and {"unit", "avg"} <= block.keys()  # aggregates over runs have a `mean`


def read(fields: Fields, source: str) -> list[MeasuredPoint]:
    """The one point of a document."""
    if fields.data.get("was_cancelled"):
        fields.wrong("was_cancelled", "the test was interrupted")
    times = Times()
    for theirs, ours in _TIMES.items():
        for stat, name in _STATS.items():
            times.add(f"{name}_{ours}_ms", _value(fields, theirs, stat, _MILLISECONDS, required=False))
    if not times.metrics:
        fields.wrong("inter_token_latency", "no latencies; profile with --streaming")
    throughput = _value(fields, "output_token_throughput", "avg", _PER_SECOND)
    count = _value(fields, "request_count", "avg", _REQUESTS)
    inputs = _value(fields, "input_sequence_length", "avg", _TOKENS)
    outputs = _value(fields, "output_sequence_length", "avg", _TOKENS)
    load = _load(fields)
    failed = _value(fields, "error_request_count", "avg", _REQUESTS, required=False)
    if load is None or not (throughput and count and inputs and outputs):
        return []
    notes = [*times.notes, *([f"{failed:g} requests failed and are not simulated"] if failed else [])]
    metrics = {"output_throughput": throughput, **times.metrics}
    duration = _value(fields, "benchmark_duration", "avg", {k: v / 1e3 for k, v in _MILLISECONDS.items()}, False)
    return [MeasuredPoint(source, TOOL, load, int(count), inputs, outputs, metrics, tuple(notes), duration)]


def _value(fields: Fields, metric: str, stat: str, units: Mapping[str, float], required: bool = True) -> float | None:
    """One statistic in our unit; a unit that is not known is a fault, never guessed."""
    block = fields.section(metric, required)
    if block is None:
        return None
    unit = block.data.get("unit")
    factor = units.get(str(unit))
    if factor is None:
        block.wrong("unit", f"found {unit!r}; known: {', '.join(units)}")
        return None
    value = block.number(stat, required)
    return None if value is None else value * factor


def _load(fields: Fields) -> Load | None:
    """From the profiling phase (`phases`), or from `loadgen` of earlier versions."""
    config = fields.section("input_config")
    phase = None if config is None else _phase(config)
    if phase is None:
        return None
    _refuse_uneven(phase)
    users = phase.count("concurrency", required=False, least=1)
    rate_key = "rate" if "rate" in phase.data else "request_rate"
    rate = phase.positive(rate_key, required=False)
    if rate is None and users is None:
        phase.wrong("concurrency", "neither a concurrency nor a rate: the load cannot be guessed")
    elif rate is not None and users is not None:
        phase.wrong(rate_key, "with a concurrency beside it the client keeps a queue of its own, which is not "
                    "simulated; measure with one of the two")  # fmt: skip
    elif rate is None:
        return _closed(phase, users)
    else:
        shape = _burstiness(phase)
        return None if shape is None else Load(None, rate, shape)
    return None


def _closed(phase: Fields, users: int | None) -> Load | None:
    """A phase without a rate is a closed loop, unless it replays times of its own."""
    kind = phase.data.get("type")
    if kind not in (None, "concurrency"):
        phase.wrong("type", f"found {kind!r}; known without a rate: concurrency")
        return None
    return Load(users)


def _refuse_uneven(phase: Fields) -> None:
    """Clients that change or hold back the load, which is not simulated."""
    for key in ("prefill_concurrency", "cancellation", "concurrency_ramp", "prefill_ramp", "rate_ramp"):
        if phase.data.get(key) is not None:
            phase.wrong(key, "the client holds requests back, cancels them or changes the load: no operating point")


def _phase(config: Fields) -> Fields | None:
    phases = config.data.get("phases")
    if phases is None:
        return config.section("loadgen")
    if isinstance(phases, Mapping):
        phases = [{"name": name, **phase} for name, phase in phases.items() if isinstance(phase, Mapping)]
    named = phases if isinstance(phases, list) else []
    found = [p for p in named if isinstance(p, Mapping) and "profiling" in (p.get("kind"), p.get("name"))]
    if len(found) == 1:
        return config.inside("phases", found[0])
    config.wrong("phases", f"{len(found)} profiling phases; a point is one")
    return None


def _burstiness(phase: Fields) -> float | None:
    kind = phase.data.get("type") or phase.data.get("arrival_pattern") or phase.data.get("request_rate_mode")
    if kind == "gamma":
        key = "smoothness" if "smoothness" in phase.data else "arrival_smoothness"
        return phase.positive(key)
    shapes = {None: 1.0, "poisson": 1.0, "constant": _CONSTANT}  # the default is Poisson, and left out by `loadgen`
    if kind not in shapes:
        phase.wrong("type", f"found {kind!r}; known for rates: poisson, gamma, constant")
        return None
    return shapes[kind]


FORMAT = Format(TOOL, "profile_export_aiperf.json", recognises, read)
