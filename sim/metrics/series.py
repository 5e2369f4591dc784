"""Tables behind a run: one row per request, and the engine's state over time in equal intervals."""

import numpy as np
from numpy.typing import NDArray

from sim.metrics.latency import Chunks, gap_statistics
from sim.metrics.record import Floats, Ints, RequestRecord, RunRecord, Status
from sim.metrics.summary import Measured
from sim.metrics.usage import step_ends

#: A table as columns of equal length, in order.
Columns = dict[str, NDArray[np.generic]]

#: Rows of a timeline; fine enough for a screen.
TIMELINE_ROWS = 400


def request_columns(run: Measured, class_names: tuple[str, ...]) -> Columns:
    """Columns of `requests.parquet`: one row per request in table order, NaN where the event never happened."""
    rows, times, emissions = run.record.requests, run.times, run.emissions
    gaps = gap_statistics(emissions)
    num = len(rows.arrival_ns)
    return {
        "request_id": np.arange(num),
        "class": np.array(class_names)[rows.class_id],
        "arrival_s": _seconds(rows.arrival_ns),
        "first_scheduled_s": _seconds(rows.first_scheduled_ns),
        "first_token_s": _seconds(rows.first_token_ns),
        "finish_s": _seconds(rows.finish_ns),
        "replica": rows.replica,
        "prompt_tokens": rows.prompt_tokens,
        "output_tokens": rows.emitted_tokens,
        "cached_tokens": rows.cached_tokens,
        "session": _sessions(rows),
        "ttft_ms": times.ttft,
        "tpot_ms": times.tpot,
        "e2el_ms": times.e2el,
        "queue_ms": times.queue,
        "num_chunks": np.bincount(emissions.row, minlength=num),
        "itl_mean_ms": gaps.mean,
        "itl_p99_ms": gaps.p99,
        "itl_max_ms": gaps.maximum,
        "num_preemptions": rows.num_preemptions,
        **_draft_columns(emissions),
        "is_warmup": np.arange(num) < run.window.num_warmup,
        "is_measured": run.window.measured,
        "meets_slo": run.good,
        "status": np.array([status.name.lower() for status in Status])[rows.status],
    }


def _sessions(rows: RequestRecord) -> Ints:
    """Row of the first turn of each request's session: its own for requests that stand for themselves."""
    return np.arange(len(rows.arrival_ns)) if rows.session_row is None else rows.session_row


def _seconds(times_ns: Ints) -> Floats:
    return np.where(times_ns >= 0, times_ns / 1e9, np.nan)


def _draft_columns(emissions: Chunks) -> Columns:
    def per_row(values: Ints) -> Ints:
        return np.bincount(emissions.row, weights=values, minlength=emissions.num_rows).astype(np.int64)

    return {
        "num_drafts": per_row((emissions.drafted > 0).astype(np.int64)),
        "draft_tokens": per_row(emissions.drafted),
        "accepted_tokens": per_row(emissions.accepted),
    }


def timeline_columns(record: RunRecord, num_rows: int = TIMELINE_ROWS) -> Columns:
    """Columns of `timeline.parquet`: the whole run, warm-up included, in equal intervals.

    `t_s` is the start of an interval. States are time averages (0 when idle), tokens and preemptions are those of the
    steps that end in the interval, `step_ms_mean` and `k_mean` average over them (NaN when there are none).
    """
    steps = record.steps
    edges = np.linspace(0, max(int(step_ends(steps).max(initial=0)), 1), num_rows + 1)
    at = np.clip(np.searchsorted(edges, step_ends(steps), side="left") - 1, 0, num_rows - 1)
    count = np.bincount(at, minlength=num_rows)

    def total(values: Ints) -> Floats:
        return np.bincount(at, weights=values, minlength=num_rows).astype(np.float64)

    def state(values: Ints) -> Floats:
        return _interval_means(record, values, edges)

    blocks = state(steps.kv_blocks_used)
    some = np.where(count > 0, count, np.nan)
    return {
        "t_s": edges[:-1] / 1e9,
        "running": state(steps.running),
        "waiting": state(steps.waiting),
        "prefill_tokens": total(steps.prefill_tokens),
        "decode_tokens": total(steps.num_tokens - steps.prefill_tokens),
        "draft_tokens": total(steps.draft_tokens),
        "accepted_tokens": total(steps.accepted_tokens),
        "kv_blocks_used": blocks,
        "kv_usage": blocks / max(record.num_kv_blocks, 1),
        "step_ms_mean": total(steps.duration_ns) / some / 1e6,
        "output_tok_s": total(steps.emitted_tokens) / (edges[1] / 1e9),
        "k_mean": total(steps.num_draft_tokens) / some,
        "preemptions": total(steps.preemptions),
    }


def _interval_means(record: RunRecord, values: Ints, edges: Floats) -> Floats:
    """Exact averages of a state between the edges, of all servers together."""
    steps, total = record.steps, np.zeros(len(edges) - 1)
    for replica in range(record.num_replicas):
        mine = steps.replica == replica
        total += _server_means(steps.start_ns[mine], steps.duration_ns[mine], values[mine], edges)
    return total


def _server_means(start: Ints, duration: Ints, values: Ints, edges: Floats) -> Floats:
    """Differences of the piecewise linear integral of one server's state."""
    if not start.size:
        return np.zeros(len(edges) - 1)
    integral = np.concatenate(([0.0], np.cumsum(values * duration.astype(np.float64))))
    knots = np.ravel(np.column_stack((start, start + duration)))
    levels = np.ravel(np.column_stack((integral[:-1], integral[1:])))
    return np.asarray(np.diff(np.interp(edges, knots, levels)) / np.diff(edges), np.float64)
