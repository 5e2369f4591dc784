"""`vllm bench serve --save-result`: one flat object per test; `--append-result` writes one a line.

Source: `vllm/benchmarks/serve.py` (`main_async`, `benchmark`, `process_one_metric`). Names and units are ours already.
"""

import math
from collections.abc import Mapping
from typing import Any

from sim.bench_results.base import STATS, TIMES, Fields, Format, Load, MeasuredPoint, Times

TOOL = "vllm bench serve"
#: Requests that all start at once are all in flight in the first second, but for a few that fail.
_TOGETHER = 0.8


def recognises(document: Mapping[str, Any]) -> bool:
    """Whether the keys are those of vLLM's generation benchmark."""
    return "total_output_tokens" in document and "output_throughput" in document


def read(fields: Fields, source: str) -> list[MeasuredPoint]:
    """The one point of a document."""
    completed, failed = fields.count("completed", least=1), fields.count("failed", required=False) or 0
    inputs, outputs = fields.positive("total_input_tokens"), fields.positive("total_output_tokens")
    duration, throughput = fields.positive("duration"), fields.positive("output_throughput")
    load = _load(fields, (completed or 0) + failed)
    times = Times()
    for name in (f"{stat}_{time}_ms" for time in TIMES for stat in STATS):
        times.add(name, fields.number(name, required=False))
    if not times.metrics:
        fields.wrong("mean_tpot_ms", "no latencies; leave --percentile-metrics out or name ttft,tpot,itl,e2el")
    drafts = fields.number("spec_decode_num_drafts", required=False) or 0.0
    drafted = fields.number("spec_decode_draft_tokens", required=False) or 0.0
    if drafts:
        times.add("spec_decode_acceptance_length", fields.positive("spec_decode_acceptance_length"))
    if load is None or not (completed and inputs and outputs and duration and throughput):
        return []
    notes = [*times.notes, *([f"{failed} requests failed and are not simulated"] if failed else [])]
    metrics = {"output_throughput": throughput, **times.metrics}
    lengths = inputs / completed, outputs / completed
    return [MeasuredPoint(source, TOOL, load, completed, *lengths, metrics, tuple(notes), duration,
                          drafted / drafts if drafts else 0.0)]  # fmt: skip


def _load(fields: Fields, num_requests: int) -> Load | None:
    """`request_rate` is "inf" in a closed loop; without a concurrency all requests then start at once."""
    if fields.data.get("ramp_up_strategy") is not None:
        fields.wrong("ramp_up_strategy", "a load that changes during the test is no operating point")
        return None
    for key in ("request_rate", "max_concurrency"):
        if key not in fields.data:
            fields.wrong(key, "missing; the load cannot be guessed")
    users = fields.count("max_concurrency", required=False, least=1)
    if fields.data.get("request_rate") in ("inf", math.inf):
        return Load(users or _all_at_once(fields, num_requests))
    rate = fields.positive("request_rate", required=False)
    if rate is not None and users is not None:
        fields.wrong("request_rate", "with max_concurrency beside it the client keeps a queue of its own, "
                     "which is not simulated; measure with one of the two")  # fmt: skip
        return None
    burstiness = fields.positive("burstiness", required=False)
    return None if rate is None else Load(None, rate, 1.0 if burstiness is None else burstiness)


def _all_at_once(fields: Fields, num_requests: int) -> int:
    """How many started together; a trace replayed by its own times says `inf` too, but has fewer at its peak."""
    peak = fields.number("max_concurrent_requests", required=False)
    if peak is not None and peak < _TOGETHER * num_requests:
        fields.wrong("request_rate", f"inf, yet at most {peak:g} of {num_requests} requests ran at a time: a replayed "
                     "trace (--self-timed)? Its load is no operating point")  # fmt: skip
    return num_requests


FORMAT = Format(TOOL, "--save-result", recognises, read)
