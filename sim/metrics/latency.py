"""Per-request latencies and streamed chunks from a run's columns, by vLLM's definitions (`vllm bench serve`).

TTFT = first token - arrival; TPOT = (e2el - ttft) / (out - 1), undefined for one output token; ITL = gap between
successive *chunks* of a request (1..K+1 tokens each); E2EL = finish - arrival; queue = first scheduled - arrival.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.metrics.record import Floats, Ints, RunRecord, Status

NS_PER_MS = 1e6


@dataclass(frozen=True, eq=False)
class Latencies:
    """Milliseconds per request, shape (N,); NaN where undefined or where the event never happened.

    Attributes:
        ttft, tpot, e2el, queue: see the module docstring.
    """

    ttft: Floats
    tpot: Floats
    e2el: Floats
    queue: Floats


def latencies(record: RunRecord) -> Latencies:
    """Latencies of every request of the table."""
    rows = record.requests
    finished = rows.status == Status.FINISHED
    ttft = _ms_since(rows.first_token_ns, rows.arrival_ns)
    e2el = np.where(finished, _ms_since(rows.finish_ns, rows.arrival_ns), np.nan)
    several = rows.emitted_tokens > 1
    tpot = np.where(several, (e2el - ttft) / np.maximum(rows.emitted_tokens - 1, 1), np.nan)
    return Latencies(ttft, tpot, e2el, _ms_since(rows.first_scheduled_ns, rows.arrival_ns))


def _ms_since(event_ns: Ints, start_ns: Ints) -> Floats:
    happened = (event_ns >= 0) & (start_ns >= 0)
    return np.where(happened, (event_ns - start_ns) / NS_PER_MS, np.nan)


@dataclass(frozen=True, eq=False)
class Chunks:
    """Every emission of a run, in table order and by output position within a request.

    Attributes:
        row: (C,) request.
        step: (C,) engine step that emitted it.
        end_ns: (C,) when it came out: the end of that step.
        tokens: (C,) tokens handed out: accepted + 1, trimmed at the end of the output.
        drafted, accepted: (C,) drafts verified by that step for this request, and accepted before trimming.
        num_rows: N, requests of the table.
    """

    row: Ints
    step: Ints
    end_ns: Ints
    tokens: Ints
    drafted: Ints
    accepted: Ints
    num_rows: int

    @cached_property
    def gap_index(self) -> Ints:
        """Chunks that are not the first of their request: each closes one inter-token gap."""
        return np.flatnonzero(self.row[1:] == self.row[:-1]) + 1

    @cached_property
    def gap_ns(self) -> Ints:
        """(G,) ITL of vLLM: time since the previous chunk of the same request, for the chunks of `gap_index`."""
        return self.end_ns[self.gap_index] - self.end_ns[self.gap_index - 1]

    @cached_property
    def gap_row(self) -> Ints:
        """(G,) request of each gap."""
        return self.row[self.gap_index]


def chunks(record: RunRecord) -> Chunks:
    """The emissions of a run as columns."""
    rows = record.requests
    at = np.flatnonzero(record.emission_step >= 0)
    row = np.repeat(np.arange(len(rows.output_tokens)), rows.output_tokens)[at]
    step = record.emission_step[at].astype(np.int64)
    accepted = record.accepted[at].astype(np.int64)
    left = rows.output_offset[row] + rows.emitted_tokens[row] - at
    end_ns = (record.steps.start_ns + record.steps.duration_ns)[step]
    drafted = record.drafted[at].astype(np.int64)
    return Chunks(row, step, end_ns, np.minimum(accepted + 1, left), drafted, accepted, len(rows.output_tokens))


@dataclass(frozen=True, eq=False)
class GapStatistics:
    """Milliseconds per request over its inter-chunk gaps, shape (N,); NaN for requests with fewer than two chunks."""

    mean: Floats
    p99: Floats
    maximum: Floats


def gap_statistics(emissions: Chunks) -> GapStatistics:
    """Mean, 99th percentile (NumPy's linear rule) and maximum of each request's gaps."""
    count = np.bincount(emissions.gap_row, minlength=emissions.num_rows)
    gaps = _sorted_by_row(emissions.gap_row, emissions.gap_ns).astype(np.float64)
    total = np.bincount(emissions.gap_row, weights=emissions.gap_ns.astype(np.float64), minlength=emissions.num_rows)
    some = count > 0
    last = np.cumsum(count)[some] - 1
    rank = 0.99 * (count[some] - 1)
    low = last - (count[some] - 1) + np.floor(rank).astype(np.int64)
    high = np.minimum(low + 1, last)
    p99 = gaps[low] + (rank - np.floor(rank)) * (gaps[high] - gaps[low])
    return GapStatistics(_spread(total[some] / count[some], some), _spread(p99, some), _spread(gaps[last], some))


def _sorted_by_row(row: Ints, gap_ns: Ints) -> Ints:
    """Gaps in ascending order within each request."""
    shift = int(gap_ns.max(initial=1)).bit_length()
    if shift + int(row.max(initial=0)).bit_length() > 62:
        return gap_ns[np.lexsort((gap_ns, row))]
    # Row and gap packed in one integer sort several times faster than by two keys.
    return np.sort((row << shift) | gap_ns) & ((1 << shift) - 1)


def _spread(values_ns: Floats, some: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    full = np.full(len(some), np.nan)
    full[some] = values_ns / NS_PER_MS
    return full


def distribution(values: Floats, name: str) -> dict[str, float | None]:
    """Summary keys of vLLM, `{mean,median,std,p90,p95,p99}_<name>_ms`: population std, NumPy linear percentiles.

    Args:
        values: milliseconds; NaN entries (undefined) are left out. Every value is None when nothing is left.
        name: such as `ttft`.
    """
    known = values[~np.isnan(values)]
    keys = [f"{stat}_{name}_ms" for stat in ("mean", "median", "std", "p90", "p95", "p99")]
    if not known.size:
        return dict.fromkeys(keys)
    median, *tails = np.percentile(known, [50, 90, 95, 99]).tolist()
    return dict(zip(keys, [float(known.mean()), median, float(known.std()), *tails], strict=True))
