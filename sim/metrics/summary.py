"""One run in one row: the summary columns, with vLLM's names, and the details beside them.

Values are `None` where there is nothing to average (never NaN); `null_reason` says why.
"""

from dataclasses import dataclass

import numpy as np

from sim.metrics.latency import Chunks, Latencies, chunks, distribution, latencies
from sim.metrics.record import Bools, Floats, RunRecord, Status
from sim.metrics.slo import Slo, good_requests
from sim.metrics.speculation import SpeculationCounts, count_speculation
from sim.metrics.usage import (
    busy_ns,
    in_system,
    is_saturated,
    memory_bound_share,
    steps_in,
    time_mean,
    time_quantile,
    time_shares,
)
from sim.metrics.window import Loop, Window, measurement_window

Value = float | int | bool | str | None
Row = dict[str, Value]

NO_SLO = Slo()
NOTHING_SCHEDULED = "no request was scheduled for the first time in the window"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a run's metrics need to know besides its record.

    Attributes:
        loop: how load was offered; warm-up.
        slo: limits for goodput.
        num_gpus: GPUs that serve the arm.
        usd_per_gpu_hour: price, None when not given.
    """

    loop: Loop
    slo: Slo = NO_SLO
    num_gpus: int = 1
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """A run with everything that several metrics need, computed once.

    Attributes:
        record, measure: as given.
        window: where metrics are taken.
        times: latencies per request.
        emissions: all chunks.
        speculation: counters over the window's chunks.
        steps: (S,) steps of the window.
        good: (N,) requests that meet the SLO.
    """

    record: RunRecord
    measure: Measure
    window: Window
    times: Latencies
    emissions: Chunks
    speculation: SpeculationCounts
    steps: Bools
    good: Bools


def measure_run(record: RunRecord, measure: Measure) -> Measured:
    """Find the window and the columns that all metrics share."""
    window = measurement_window(record, measure.loop)
    times, emissions = latencies(record), chunks(record)
    counts = count_speculation(emissions, window.contains(emissions.end_ns), record.tree_depth)
    good = good_requests(times, measure.slo)
    return Measured(record, measure, window, times, emissions, counts, steps_in(record.steps, window), good)


def summary_row(run: Measured) -> Row:
    """The metric columns of `summary.csv`, in order."""
    return {
        **_throughput(run),
        **_latency(run),
        **_load(run),
        **_engine(run),
        **_prefix_cache(run),
        **_speculation(run),
    }


def _throughput(run: Measured) -> Row:
    rows, window = run.record.requests, run.window
    seconds = window.seconds
    done = (rows.status == Status.FINISHED) & window.contains(rows.finish_ns)
    inputs, outputs = int(rows.prompt_tokens[done].sum()), run.speculation.num_tokens
    goodput = int((done & run.good).sum()) / seconds if run.measure.slo.is_set else None
    return {
        "duration": seconds,
        "completed": int(done.sum()),
        "failed": int(((rows.status != Status.FINISHED) & (rows.status != Status.UNSENT)).sum()),
        "unsent": int((rows.status == Status.UNSENT).sum()),
        "rejected": int((rows.status == Status.REJECTED).sum()),
        "num_measured": int(window.measured.sum()),
        "num_warmup": window.num_warmup,
        "num_cooldown": window.num_cooldown,
        "steady": window.steady,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": int(done.sum()) / seconds,
        "request_goodput": goodput,
        "output_throughput": outputs / seconds,
        "total_token_throughput": (inputs + outputs) / seconds,
    }


def measured_gaps_ms(run: Measured) -> Floats:
    """Inter-chunk gaps of the measured requests, pooled."""
    gaps: Floats = run.emissions.gap_ns[run.window.measured[run.emissions.gap_row]] / 1e6
    return gaps


def _latency(run: Measured) -> Row:
    chosen, times, slo = run.window.measured, run.times, run.measure.slo
    itl = measured_gaps_ms(run)
    pairs = (("ttft", times.ttft[chosen]), ("tpot", times.tpot[chosen]), ("itl", itl), ("e2el", times.e2el[chosen]))
    row: Row = {key: value for name, values in pairs for key, value in distribution(values, name).items()}
    row |= {
        key: value for key, value in distribution(times.queue[chosen], "queue").items() if key[:4] in ("mean", "p99_")
    }
    share = float(run.good[chosen].mean()) if slo.is_set and chosen.any() else None
    row |= {"goodput_frac": share, "slo_met": None if share is None else share >= slo.percentile / 100}
    return row


def _load(run: Measured) -> Row:
    tpot = run.times.tpot[run.window.measured]
    tpot = tpot[tpot > 0]
    rate = run.speculation.num_tokens / run.window.seconds
    price = run.measure.usd_per_gpu_hour
    hourly = None if price is None else price * run.measure.num_gpus
    return {
        "tok_s_user_median": float(np.median(1e3 / tpot)) if tpot.size else None,
        "output_tok_s_gpu": rate / run.measure.num_gpus,
        "usd_per_mtok_output": hourly / 3600 / rate * 1e6 if hourly is not None and rate else None,
        "max_output_tokens_per_s": _busiest_second(run),
        "max_concurrent_requests": _most_in_system(run),
    }


def _busiest_second(run: Measured) -> int:
    """Most tokens in any of the window's one-second buckets, counted from its start."""
    inside = run.window.contains(run.emissions.end_ns)
    bucket = (run.emissions.end_ns[inside] - run.window.start_ns - 1) // 1_000_000_000
    return int(np.bincount(bucket, weights=run.emissions.tokens[inside]).max(initial=0))


def _most_in_system(run: Measured) -> int:
    arrivals = run.record.requests.arrival_ns
    arrivals = arrivals[(arrivals >= run.window.start_ns) & (arrivals <= run.window.end_ns)]
    moments = np.concatenate(([run.window.start_ns], arrivals))
    return int(in_system(run.record, moments).max())


def _engine(run: Measured) -> Row:
    steps, window = run.record.steps, run.window
    weights = busy_ns(steps, window)
    blocks = max(run.record.num_kv_blocks, 1)
    shares = time_shares(steps, run.steps)
    chosen = run.steps
    return {
        "mean_running": time_mean(steps.running, weights, window),
        "p99_running": time_quantile(steps, steps.running, window, 0.99),
        "mean_waiting": time_mean(steps.waiting, weights, window),
        "mean_batch_tokens": float(steps.num_tokens[chosen].mean()) if chosen.any() else None,
        "kv_usage_mean": time_mean(steps.kv_blocks_used, weights, window) / blocks,
        "kv_usage_p99": time_quantile(steps, steps.kv_blocks_used, window, 0.99) / blocks,
        "preemptions": int(steps.preemptions[chosen].sum()),
        "recomputed_tokens": int(run.record.requests.recomputed_tokens.sum()),
        "steps": int(chosen.sum()),
        "step_ms_mean": float(steps.duration_ns[chosen].mean()) / 1e6 if chosen.any() else None,
        "sim_time_s": int((steps.start_ns + steps.duration_ns).max(initial=0)) / 1e9,
        "busy_frac": time_mean(np.ones_like(steps.running), weights, window) / run.record.num_replicas,
        "saturated": _saturates(run.measure.loop) and is_saturated(run.record),
        "mem_bound_frac": memory_bound_share(steps, chosen),
        "draft_time_frac": shares.draft if shares else None,
        "verify_time_frac": shares.verify if shares else None,
        "prefill_time_frac": shares.prefill if shares else None,
        "overhead_frac": shares.overhead if shares else None,
    }


def _saturates(loop: Loop) -> bool:
    return loop.max_concurrency is None and loop.saturates


def _prefix_cache(run: Measured) -> Row:
    """Prompt tokens asked for and found, over the requests first scheduled in the window (vLLM's counters)."""
    rows = run.record.requests
    asked = run.window.contains(rows.first_scheduled_ns)
    queries, hits = int(rows.prompt_tokens[asked].sum()), int(rows.cached_tokens[asked].sum())
    shared = int(rows.shared_tokens[asked].sum())
    return {
        "prefix_cache_queries": queries,
        "prefix_cache_hits": hits,
        "prefix_cache_hit_rate": hits / queries if queries else None,
        "prefix_cache_shared_rate": shared / queries if queries else None,
        "prefix_cache_evictions": run.record.evictions,
    }


def _speculation(run: Measured) -> Row:
    counts = run.speculation
    rate = counts.acceptance_rate
    return {
        "spec_decode_acceptance_rate": None if rate is None else 100.0 * rate,
        "spec_decode_acceptance_length": counts.acceptance_length,
        "spec_decode_num_drafts": counts.num_drafts,
        "spec_decode_draft_tokens": counts.num_draft_tokens,
        "spec_decode_accepted_tokens": counts.num_accepted_tokens,
        "spec_decode_per_position_acceptance_rates": " ".join(f"{rate:.6g}" for rate in counts.per_position_rates),
        "wasted_draft_tokens": counts.num_draft_tokens - counts.num_accepted_tokens,
        "tokens_per_step": counts.tokens_per_step,
        "effective_k_mean": counts.num_draft_tokens / counts.num_drafts if counts.num_drafts else None,
        "k_mean": counts.num_draft_tokens / counts.num_steps if counts.num_steps else None,
        "k_switches": _k_switches(run),
    }


def _k_switches(run: Measured) -> int:
    """Steps of the window whose K differs from that of the step before."""
    k = run.record.steps.num_draft_tokens
    return int(np.count_nonzero(np.diff(k) * run.steps[1:]))


def null_reason(key: str) -> str:
    """Why a summary column is empty."""
    reasons = {
        "request_goodput": "no SLO was given",
        "goodput_frac": "no SLO was given, or no request was measured",
        "slo_met": "no SLO was given, or no request was measured",
        "usd_per_mtok_output": "no price was given, or no tokens came out in the window",
        "effective_k_mean": "no drafts were verified in the window",
        "tokens_per_step": "no tokens came out in the window",
        "k_mean": "no tokens came out in the window",
        **dict.fromkeys(("prefix_cache_hit_rate", "prefix_cache_shared_rate"), NOTHING_SCHEDULED),
        "mem_bound_frac": "no step ended in the window, or passes took no time",
    }
    if key.startswith("spec_decode"):
        return "no drafts were verified in the window"
    if "_tpot_" in key or key == "tok_s_user_median":
        return "no measured request finished with more than one output token"
    if "_itl_" in key:
        return "no measured request streamed more than one chunk"
    if key.endswith("_ms") and key != "step_ms_mean":
        return "no measured request got that far"
    return reasons.get(key, "no step ended in the window")
