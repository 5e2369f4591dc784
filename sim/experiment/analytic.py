"""The closed-form speed-up over the batch: tokens per step x plain step time / speculative step time.

Every sequence decodes at the same context; no prefill, no queue. Drawn beside the simulated curve, and the source of
the model band: what the curve becomes when the speculative steps take `relative_error` more or less than priced, with
the errors of the engine's share added in quadrature.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost.base import PassPrice
from sim.cost.passes import verify_pass
from sim.scenario.build import ArmSetup, resolved
from sim.speculation.base import DraftWork
from sim.theory.crossings import Crossing, crossings
from sim.theory.tokens import tokens_from_survival

Floats = NDArray[np.float64]

#: Points of the drawn curve; crossings are searched over every whole batch.
DRAWN_POINTS = 48


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """Seconds of one engine step: target and drafter on the GPU, and the host (beside them when `overlapped`)."""

    target: PassPrice
    draft_s: float
    host_s: float
    overlapped: bool
    engine_error_s: float = 0.0

    @property
    def gpu_s(self) -> float:
        """Target and drafter."""
        return self.target.seconds + self.draft_s

    def seconds(self, gpu_scale: float = 1.0) -> float:
        """Duration of the step when GPU work takes `gpu_scale` times as long as priced."""
        gpu_s = self.gpu_s * gpu_scale
        return max(gpu_s, self.host_s) if self.overlapped else gpu_s + self.host_s

    def error(self, relative_error: float) -> float:
        """Relative error of the GPU time: kernels and what the engine adds, in quadrature; always below 1."""
        return min(0.99, math.hypot(relative_error, self.engine_error_s / self.gpu_s)) if self.gpu_s else relative_error


def decode_step(setup: ArmSetup, batch: int, context_tokens: int) -> DecodeStep:
    """Price a steady decode step of an arm, with the K that its rule picks for this batch."""
    return decode_step_with(setup, batch, context_tokens, setup.draft_tokens(batch))


def decode_step_with(setup: ArmSetup, batch: int, context_tokens: int, k: int) -> DecodeStep:
    """Price a steady decode step with `k` drafts per request; 0 still runs the first pass of a loaded drafter."""
    forward = verify_pass(batch, context_tokens, k)
    return price_step(setup, DraftWork(forward, batch, batch * context_tokens, k))


def price_step(setup: ArmSetup, work: DraftWork) -> DecodeStep:
    """Price any step of an arm: the target's pass, the drafts made after it, and the host."""
    target, host = setup.cost.target.price(work.target), setup.cost.host
    draft_s = setup.drafter.draft_seconds(work)
    overlapped = resolved(setup.engine.async_scheduling) and not host.is_remainder
    passes = setup.arm.speculative_config.num_draft_passes(work.num_draft_tokens)
    engine_error_s = setup.cost.engine_error.seconds(work.target, target, passes)
    return DecodeStep(target, draft_s, host.seconds(work.target.num_seqs), overlapped, engine_error_s)


@dataclass(frozen=True, eq=False)
class AnalyticCurve:
    """Speed-up of an arm over the baseline at equal batch.

    Attributes:
        batch: (B,) whole batches from 1 to the largest that fits, all of them.
        speedup, band_low, band_high: (B,) as priced, and with speculative GPU times off by the relative error.
        context_tokens: context of every sequence.
        kv_limited: the largest batch is set by KV capacity, not by `max_num_seqs`.
    """

    batch: NDArray[np.int64]
    speedup: Floats
    band_low: Floats
    band_high: Floats
    context_tokens: int
    kv_limited: bool

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        """Every change of sign of speed-up - 1."""
        return crossings(self.batch.tolist(), np.log(self.speedup).tolist())

    def band_at(self, batch: float) -> tuple[float, float]:
        """Log factors (down, up) that the relative error puts on the speed-up at a batch."""
        ratios = (np.log(band / self.speedup) for band in (self.band_low, self.band_high))
        down, up = (float(np.interp(batch, self.batch, ratio)) for ratio in ratios)
        return down, up


def analytic_curve(arm: ArmSetup, baseline: ArmSetup, context_tokens: int) -> AnalyticCurve:
    """The closed form over every batch that fits both arms."""
    largest, kv_limited = _largest_batch(arm, baseline, context_tokens)
    batches = np.arange(1, largest + 1)
    rows = [speedup_and_band(arm, baseline, batch, context_tokens) for batch in batches.tolist()]
    priced, low, high = np.array(rows).T
    return AnalyticCurve(batches, priced, low, high, context_tokens, kv_limited)


def speedup_and_band(arm: ArmSetup, baseline: ArmSetup, batch: int, context_tokens: int) -> tuple[float, float, float]:
    """Speed-up of an arm at one batch: as priced, and with its GPU times off by the relative error, up and down."""
    plain = decode_step(baseline, batch, context_tokens).seconds()
    gain = tokens_per_step(arm, batch) / tokens_per_step(baseline, batch)
    step = decode_step(arm, batch, context_tokens)
    error = step.error(arm.cost.relative_error)
    return tuple(gain * plain / step.seconds(scale) for scale in (1.0, 1.0 + error, 1.0 - error))  # type: ignore[return-value]


def tokens_per_step(setup: ArmSetup, batch: int) -> float:
    """Expected tokens per step over long outputs, bonus included, for the K picked at this batch."""
    return tokens_from_survival(setup.survival(setup.draft_tokens(batch)))


def _largest_batch(arm: ArmSetup, baseline: ArmSetup, context_tokens: int) -> tuple[int, bool]:
    """The largest batch that both arms can hold, and whether KV capacity (not the scheduler's limits) sets it."""
    limits = [requests_that_fit(setup, context_tokens) for setup in (arm, baseline)]
    seqs = min(largest_scheduled(setup) for setup in (arm, baseline))
    return max(1, min(*limits, seqs)), min(limits) < seqs


def requests_that_fit(setup: ArmSetup, context_tokens: int) -> int:
    """Decoding requests of this context that the KV pool holds: context, new token, drafts and look-ahead slots."""
    config = setup.arm.speculative_config
    slots = context_tokens + 1 + config.max_draft_tokens + config.lookahead_tokens
    return setup.deployment.num_kv_blocks // -(-slots // setup.deployment.block_size)


def largest_scheduled(setup: ArmSetup) -> int:
    """Sequences that one step can take with all their drafts: `max_num_seqs`, or fewer where the token budget ends."""
    budget = resolved(setup.engine.max_num_scheduled_tokens)
    batches = range(resolved(setup.engine.max_num_seqs), 0, -1)
    return next((batch for batch in batches if batch * (1 + setup.draft_tokens(batch)) <= budget), 1)


def why_not(setup: ArmSetup) -> str:
    """Why the closed form does not describe an arm; "" when it does."""
    if setup.arm.class_acceptance:
        return "traffic classes have acceptances of their own"
    if setup.arm.acceptance is not None and setup.arm.acceptance.context_decay is not None:
        return "acceptance depends on the context"
    if setup.arm.speculative_config.draft_count_varies:
        return "the number of drafts depends on the text"
    if setup.arm.k_rule.table(setup.arm.speculative_config.max_draft_tokens) is None:
        return f"K follows from what happens in the run ({setup.arm.k_rule.kind})"
    return ""


def analytic_document(curve: AnalyticCurve) -> dict[str, object]:
    """The curve for `breakeven.json`, thinned to a few dozen batches."""
    last = int(curve.batch[-1])
    drawn = np.unique(np.round(np.geomspace(1, last, DRAWN_POINTS)).astype(np.int64)) - 1
    found = curve.crossings
    names = {"stops_paying": "gain_to_loss", "starts_paying": "loss_to_gain"}
    marks = [{"value": c.value, "direction": names[c.direction], **_crossing_band(curve, c)} for c in found]
    status = "crosses" if found else "always" if curve.speedup[0] > 1 else "never"
    return {
        "batch": curve.batch[drawn].tolist(),
        "speedup": curve.speedup[drawn].tolist(),
        "band_low": curve.band_low[drawn].tolist(),
        "band_high": curve.band_high[drawn].tolist(),
        "context_tokens": curve.context_tokens,
        "max_batch": last,
        "crossings": marks,
        "status": status,
        "capacity_reached_first": curve.kv_limited and not found,
    }


def _crossing_band(curve: AnalyticCurve, crossing: Crossing) -> dict[str, float | None]:
    """Where the crossing moves when the band's edges are the truth; None outside the batches that fit.

    The edges lie on either side of the curve, so each moves a crossing one way only.
    """
    early, late = curve.band_low, curve.band_high
    if crossing.direction == "starts_paying":
        early, late = late, early
    before = [value for value in _same(curve, early, crossing) if value <= crossing.value]
    after = [value for value in _same(curve, late, crossing) if value >= crossing.value]
    return {"model_band_low": max(before, default=None), "model_band_high": min(after, default=None)}


def _same(curve: AnalyticCurve, edge: Floats, crossing: Crossing) -> list[float]:
    """Crossings of an edge in the same direction."""
    found = crossings(curve.batch.tolist(), np.log(edge).tolist())
    return [one.value for one in found if one.direction == crossing.direction]
