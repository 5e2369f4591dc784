"""What `result.json` holds beside the summary row: acceptance by position, histograms, shares of the step time."""

import numpy as np

from sim.metrics.record import Floats
from sim.metrics.summary import Measured, measured_gaps_ms

Json = dict[str, object]

#: Order of the columns of `StepRecord.op_seconds` (`sim.cost.base.OP_GROUPS`; floors keep the two apart).
OP_COLUMNS = ("linear", "attention", "lm_head", "collective", "fixed")


def acceptance_details(run: Measured) -> Json:
    """Rates by draft position with both denominators, and histograms, over the window."""
    counts = run.speculation
    return {
        "per_position_acceptance_rates": _list(counts.per_position_rates),
        "per_position_acceptance_rates_drafted": _list(counts.per_position_rates_drafted),
        "conditional_acceptance_rates": _list(counts.conditional_rates),
        "num_accepted_tokens_per_pos": counts.accepted_per_pos.tolist(),
        "num_draft_tokens_per_pos": counts.drafted_per_pos.tolist(),
        "num_reached_per_pos": counts.reached_per_pos.tolist(),
        "histogram": counts.histogram.tolist(),
        "tokens_per_step_histogram": counts.tokens_histogram.tolist(),
        "trimmed_tokens": counts.num_trimmed_tokens,
    }


def _list(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def step_time_s(run: Measured) -> dict[str, float]:
    """Seconds of the window's steps by part: `draft`, the target by op group, `host`."""
    steps, chosen = run.record.steps, run.steps
    groups = dict(zip(OP_COLUMNS, steps.op_seconds[chosen].sum(axis=0).tolist(), strict=True))
    draft, host = int(steps.draft_ns[chosen].sum()) / 1e9, int(steps.host_ns[chosen].sum()) / 1e9
    return {"draft": draft, **groups, "host": host}


#: Edges of the ITL histogram in ms: fifty bins per decade (4.7 % wide) from 1 us to 1000 s.
ITL_EDGES_MS = 10.0 ** (np.arange(451) / 50.0 - 3.0)


def itl_histogram(run: Measured) -> Json:
    """Counts of the measured requests' inter-chunk gaps in logarithmic bins; gaps outside fall into the end bins."""
    gaps = np.clip(measured_gaps_ms(run), ITL_EDGES_MS[0], ITL_EDGES_MS[-1])
    counts = np.histogram(gaps, ITL_EDGES_MS)[0]
    used = np.flatnonzero(counts)
    first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    return {
        "edges_ms": ITL_EDGES_MS[first : last + 1].tolist() if used.size else [],
        "counts": counts[first:last].tolist(),
    }


def mean_decode_context(run: Measured) -> float:
    """Tokens of context that a decoding request holds on average, over its output tokens: mean of P + j.

    Every output token counts once, so long outputs weigh more: the average a decode step meets.
    """
    prompt = run.record.requests.prompt_tokens.astype(np.float64)
    output = run.record.requests.emitted_tokens.astype(np.float64)
    return float((output * (prompt + (output - 1) / 2)).sum() / max(output.sum(), 1.0))
