"""Kernel times brought to whole steps of one engine, as `specsim calibrate` fits them to measured steps."""

from sim.cost.base import ForwardPass, PassCost, PassPrice
from sim.hardware.profile import StepFit


class CalibratedSteps:
    """Prices of another cost model, scaled, with fixed costs per step and per verified token.

    Attributes:
        kernels: prices the kernels of a pass.
    """

    __slots__ = ("_per_draft_s", "_per_step_s", "_rereads", "_scale", "kernels")

    def __init__(self, kernels: PassCost, fit: StepFit) -> None:
        self.kernels, self._scale, self._rereads = kernels, fit.time_scale, fit.kv_rereads
        self._per_step_s, self._per_draft_s = fit.per_step_us * 1e-6, fit.per_verified_token_us * 1e-6

    def price(self, forward: ForwardPass) -> PassPrice:
        """Time of the pass by op group; 0 tokens cost 0 seconds."""
        if not forward.num_tokens:
            return self.kernels.price(forward)
        seconds, linear, attention, head, collective, fixed, bound = self.kernels.price(reread(forward, self._rereads))
        scale, extra = self._scale, self._per_step_s + forward.num_draft_tokens * self._per_draft_s
        return PassPrice(
            scale * seconds + extra, scale * linear, scale * attention, scale * head, scale * collective,
            scale * fixed + extra, bound,
        )  # fmt: skip


def reread(forward: ForwardPass, times: float) -> ForwardPass:
    """The pass with the KV of sequences with several new tokens read so many times; a prefill chunk too."""
    extend = forward.extend
    if times == 1.0 or not extend.num_seqs:
        return forward
    return forward._replace(extend=extend._replace(kv_tokens_read=round(extend.kv_tokens_read * times)))


def drafter_steps(fit: StepFit) -> StepFit:
    """What of a target's calibration holds for its drafter: the same engine's kernels, not the fixed costs."""
    return StepFit(source=fit.source, time_scale=fit.time_scale)
