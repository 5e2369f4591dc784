"""Closed forms of the break-even batch and the break-even load. Oracles for code and dashed lines in reports.

They hold for ideal costs (docs/background/mathematics.md, "Break-even" and "Break-even load"); real efficiencies
move the batch down. Times are seconds; tokens per step (omega) include the bonus token.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sim.theory.crossings import Crossing


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Ideal times of one forward pass.

    Attributes:
        weights_s: m, reading the weights once.
        kv_s: k, reading the KV cache of one sequence.
        token_s: f, computing one token.
        fixed_s: o, launch and other costs per pass.
    """

    weights_s: float
    kv_s: float = 0.0
    token_s: float = 0.0
    fixed_s: float = 0.0


NO_DRAFTER = PassTimes(0.0)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Up to which batch speculation pays.

    Attributes:
        status: `always` or `never` pays at every batch > 0, or `crosses`.
        value: the last place where it stops paying; inf when it pays for ever from some batch on, 0 when it never does.
        crossings: every change of sign, in order.
    """

    status: Literal["always", "never", "crosses"]
    value: float
    crossings: tuple[Crossing, ...] = ()


def roofline_pass_s(target: PassTimes, batch: float, tokens_per_sequence: int) -> float:
    """T(B, n) = o + max(m + B k, n B f): memory and computing overlap completely."""
    memory = target.weights_s + batch * target.kv_s
    return target.fixed_s + max(memory, tokens_per_sequence * batch * target.token_s)


def additive_pass_s(target: PassTimes, batch: float, tokens_per_sequence: int) -> float:
    """T(B, n) = o + m + B (k + n f): memory and computing do not overlap."""
    return target.fixed_s + target.weights_s + batch * (target.kv_s + tokens_per_sequence * target.token_s)


def ridge_batch(target: PassTimes, tokens_per_sequence: int) -> float:
    """Batch from which a pass is compute-bound, m / (n f - k); inf when it never is."""
    slope = tokens_per_sequence * target.token_s - target.kv_s
    return target.weights_s / slope if slope > 0 else math.inf


def roofline_break_even(
    target: PassTimes, drafter: PassTimes, tokens_per_step: float, num_draft_tokens: int
) -> BreakEven:
    """Break-even batch when memory and computing overlap: B* = (omega m - K m_d) / ((K+1) f + K k_d - omega k).

    That form holds between the ridge of verification and the ridge of plain decoding; all linear pieces are searched.
    """

    def margin(batch: float) -> float:
        plain = roofline_pass_s(target, batch, 1)
        verify = roofline_pass_s(target, batch, num_draft_tokens + 1)
        return tokens_per_step * plain - verify - num_draft_tokens * additive_pass_s(drafter, batch, 1)

    ridges = (ridge_batch(target, num_draft_tokens + 1), ridge_batch(target, 1))
    return _zeros_of_piecewise_linear(margin, sorted(r for r in ridges if math.isfinite(r)))


def additive_break_even(
    target: PassTimes, drafter: PassTimes, tokens_per_step: float, num_draft_tokens: int
) -> BreakEven:
    """Break-even batch when memory and computing add.

    B* = ((omega-1)(m+o) - K (m_d+o_d)) / ((K+1-omega) f - (omega-1) k + K (k_d+f_d)).
    """

    def margin(batch: float) -> float:
        plain = additive_pass_s(target, batch, 1)
        verify = additive_pass_s(target, batch, num_draft_tokens + 1)
        return tokens_per_step * plain - verify - num_draft_tokens * additive_pass_s(drafter, batch, 1)

    return _zeros_of_piecewise_linear(margin, [])


def _zeros_of_piecewise_linear(margin: Callable[[float], float], bends: list[float]) -> BreakEven:
    """Sign changes on (0, inf) of a continuous function that is linear between `bends` (sorted)."""
    edges = [0.0, *bends]
    tail = (edges[-1] or 1.0) * 2.0
    found: list[Crossing] = []
    for left, right in zip(edges, [*bends, tail], strict=True):
        at, slope = margin(left), (margin(right) - margin(left)) / (right - left)
        root = left - at / slope if at * slope < 0 else math.inf
        if root <= right or (right == tail and math.isfinite(root)):
            found.append(Crossing(root, "stops_paying" if at > 0 else "starts_paying", (root, root)))
    return _summary(found, pays_first=margin(edges[0]) > 0 or (margin(edges[0]) == 0 and margin(tail) > 0))


def _summary(found: list[Crossing], pays_first: bool) -> BreakEven:
    if not found:
        return BreakEven("always", math.inf) if pays_first else BreakEven("never", 0.0)
    last = found[-1]
    return BreakEven("crosses", last.value if last.direction == "stops_paying" else math.inf, tuple(found))


def never_stops_context_tokens(
    bandwidth_bytes_per_s: float,
    token_s: float,
    kv_bytes_per_token: float,
    drafter_kv_bytes_per_token: float,
    tokens_per_step: float,
    num_draft_tokens: int,
) -> float:
    """S* = (K+1) f BW / (omega kappa - K kappa_d): context from which the overlapping roofline always pays.

    Returns inf when the drafter's KV costs more than speculation saves at any context.
    """
    saved = tokens_per_step * kv_bytes_per_token - num_draft_tokens * drafter_kv_bytes_per_token
    return (num_draft_tokens + 1) * token_s * bandwidth_bytes_per_s / saved if saved > 0 else math.inf


@dataclass(frozen=True, slots=True)
class FluidLoad:
    """Open loop in the fluid limit: T = m + n B f, decode load x and prefill load y in tokens/s.

    Attributes:
        weights_s: m.
        token_s: f.
        drafter_s: D, drafting time per step.
        tokens_per_step: omega, bonus token included.
        num_draft_tokens: K.
        prefill_tokens_per_s: y.
    """

    weights_s: float
    token_s: float
    drafter_s: float
    tokens_per_step: float
    num_draft_tokens: int
    prefill_tokens_per_s: float = 0.0

    @property
    def free_share(self) -> float:
        """Share of the time that prefill leaves: g = 1 - f y."""
        return 1.0 - self.token_s * self.prefill_tokens_per_s

    @property
    def plain_capacity(self) -> float:
        """Highest plain decode load, g / f tokens/s."""
        return self.free_share / self.token_s

    @property
    def speculative_capacity(self) -> float:
        """Highest speculative decode load, omega g / ((K+1) f) tokens/s: lower by the factor omega / (K+1)."""
        return self.tokens_per_step / (self.num_draft_tokens + 1) * self.plain_capacity

    def plain_itl_s(self, load: float) -> float:
        """Mean time per output token of plain decoding, m / (g - f x); inf at or above capacity."""
        slack = self.free_share - self.token_s * load
        return self.weights_s / slack if slack > 0 else math.inf

    def speculative_itl_s(self, load: float) -> float:
        """Mean time per output token with speculation, (m + D) / (omega g - (K+1) f x); inf from capacity on."""
        slack = self.tokens_per_step * self.free_share - (self.num_draft_tokens + 1) * self.token_s * load
        return (self.weights_s + self.drafter_s) / slack if slack > 0 else math.inf

    def break_even(self) -> BreakEven:
        """Load x* = g ((omega-1) m - D) / (f (K m - D)), up to which the speculative ITL is the lower one."""
        gain = (self.tokens_per_step - 1.0) * self.weights_s - self.drafter_s
        if gain <= 0:
            return BreakEven("never", 0.0)
        cost = self.num_draft_tokens * self.weights_s - self.drafter_s
        load = self.free_share * gain / (self.token_s * cost)
        return BreakEven("crosses", load, (Crossing(load, "stops_paying", (load, load)),))

    def break_even_batch(self) -> float:
        """Batch at the break-even load, ((omega-1) m - D) / (f (K+1-omega)): the same for every prefill load."""
        gain = (self.tokens_per_step - 1.0) * self.weights_s - self.drafter_s
        cost = self.token_s * (self.num_draft_tokens + 1 - self.tokens_per_step)
        return max(gain, 0.0) / cost if cost > 0 else math.inf
