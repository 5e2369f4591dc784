"""Made-up results of load tests, in the form that each tool writes; no server was measured."""

from collections.abc import Mapping
from typing import Any

from sim.bench_results.base import STATS, TIMES, Load


def vllm_bench(
    load: Load, completed: int, lengths: tuple[float, float], metrics: Mapping[str, float], **changes: Any
) -> dict[str, Any]:
    """The JSON of `vllm bench serve --save-result` with these metrics; keyword arguments replace keys.

    Args:
        load: how requests were sent.
        completed: requests.
        lengths: mean prompt and output tokens.
        metrics: by column of `summary.csv`.
        changes: keys to replace.
    """
    document = {
        "date": "20260101-000000", "endpoint_type": "openai", "backend": "openai", "label": "openai",
        "model_id": "made-up", "tokenizer_id": "made-up", "num_prompts": completed,
        "request_rate": "inf" if load.request_rate is None else load.request_rate, "burstiness": load.burstiness,
        "max_concurrency": load.max_concurrency,
        "duration": completed * lengths[1] / metrics["output_throughput"], "completed": completed, "failed": 0,
        "total_input_tokens": round(completed * lengths[0]), "total_output_tokens": round(completed * lengths[1]),
        "request_throughput": metrics["output_throughput"] / lengths[1], "request_goodput": None,
        "output_throughput": metrics["output_throughput"],
    }  # fmt: skip
    times = [f"{stat}_{name}_ms" for name in TIMES for stat in STATS]
    document |= {name: metrics[name] for name in times if metrics.get(name)}
    if length := metrics.get("spec_decode_acceptance_length"):
        drafts = 1000
        accepted = round(drafts * (length - 1))
        document |= {
            "spec_decode_acceptance_rate": 100 * accepted / (3 * drafts), "spec_decode_acceptance_length": length,
            "spec_decode_num_drafts": drafts, "spec_decode_draft_tokens": 3 * drafts,
            "spec_decode_accepted_tokens": accepted, "spec_decode_per_position_acceptance_rates": [],
        }  # fmt: skip
    return document | changes


#: 16 at a time: 100 requests of 200 and 50 tokens at 16 / 0.55 s = 29 requests a second.
VLLM = vllm_bench(
    Load(16), 100, (200, 50),
    {"output_throughput": 1400.0, "mean_ttft_ms": 60.0, "median_ttft_ms": 50.0, "p99_ttft_ms": 90.0,
     "mean_tpot_ms": 10.0, "median_tpot_ms": 9.9, "p99_tpot_ms": 12.0, "mean_itl_ms": 25.0, "median_itl_ms": 25.0,
     "p99_itl_ms": 40.0, "spec_decode_acceptance_length": 2.5},
)  # fmt: skip


def aiperf(phase: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """`profile_export_aiperf.json` of the same test."""
    profiling = {"name": "profiling", "type": "concurrency", "concurrency": 16} | dict(phase or {})
    return {
        "schema_version": "1.5", "aiperf_version": "0.13.0", "was_cancelled": False,
        "input_config": {"phases": [{"name": "warmup", "type": "concurrency", "concurrency": 1}, profiling]},
        "request_count": {"unit": "requests", "avg": 100.0}, "benchmark_duration": {"unit": "sec", "avg": 5000 / 1400},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1400.0},
        "input_sequence_length": {"unit": "tokens", "avg": 200.0},
        "output_sequence_length": {"unit": "tokens", "avg": 50.0},
        "time_to_first_token": {"unit": "s", "avg": 0.06, "p50": 0.05, "p99": 0.09},
        "inter_token_latency": {"unit": "ms", "avg": 10.0, "p50": 9.9, "p99": 12.0},
        "inter_chunk_latency": {"unit": "ms", "avg": 25.0, "p50": 25.0, "p99": 40.0},
        "request_latency": {"unit": "ms", "avg": 550.0, "p50": 540.0, "p99": 700.0},
    } | changes  # fmt: skip


def _spread(mean: float, median: float, p99: float) -> dict[str, Any]:
    nothing = {"mean": 0.0, "median": 0.0, "percentiles": {"p99": 0.0}}
    return {"successful": {"mean": mean, "median": median, "percentiles": {"p99": p99}}, "errored": nothing}


def guidellm(*strategies: Mapping[str, Any]) -> dict[str, Any]:
    """`benchmarks.json` with the same test under each strategy."""
    metrics = {
        "request_totals": {"successful": 100, "incomplete": 0, "errored": 0, "total": 100},
        "prompt_token_count": _spread(200.0, 200.0, 200.0), "output_token_count": _spread(50.0, 50.0, 50.0),
        "output_tokens_per_second": _spread(1400.0, 1390.0, 1500.0),
        "time_to_first_token_ms": _spread(60.0, 50.0, 90.0), "inter_token_latency_ms": _spread(10.0, 9.9, 12.0),
        "time_per_output_token_ms": _spread(11.0, 10.9, 13.0), "request_latency": _spread(0.55, 0.54, 0.7),
    }  # fmt: skip
    benchmarks = [{"config": {"strategy": dict(strategy)}, "metrics": metrics} for strategy in strategies]
    return {"metadata": {"version": 2, "guidellm_version": "0.7.0"}, "benchmarks": benchmarks}
