"""Decode steps of one uniform batch at one context: what research loops time."""

import re
from typing import NamedTuple

from sim.cost.passes import plain_pass, verify_pass
from sim.cost.stack import RooflineCost
from sim.scenario.build import ArmSetup


class StepTimes(NamedTuple):
    """Milliseconds, host included.

    Attributes:
        plain_ms: a plain decode step.
        verify_ms: the target's pass over the drafts.
        step_ms: the same with what the engine adds to every speculative step: bookkeeping, which sources do not time as
            verification.
    """

    plain_ms: float
    verify_ms: float
    step_ms: float

    @property
    def ratio(self) -> float:
        """T_verify / T_plain."""
        return self.verify_ms / self.plain_ms


def step_times(plain: ArmSetup, batch: int, context_tokens: int, num_drafts: int) -> StepTimes:
    """Price them."""
    host, target = plain.cost.host.seconds(batch), plain.cost.target
    decode, step = (
        target.price(p).seconds + host
        for p in (plain_pass(batch, context_tokens), verify_pass(batch, context_tokens, num_drafts))
    )
    bookkeeping = target.engine.speculative_step_s if num_drafts and isinstance(target, RooflineCost) else 0.0
    return StepTimes(1e3 * decode, 1e3 * (step - bookkeeping), 1e3 * step)


_STATED = re.compile(r"T_draft=([\d.]+) ms, T_verify=([\d.]+) ms")


class StatedSteps(NamedTuple):
    """Milliseconds that a source states of a speculative step: all drafts together, and their verification."""

    drafts_ms: float
    verify_ms: float


def stated_steps(notes: str) -> StatedSteps | None:
    """What a row's notes say, if they do."""
    found = _STATED.search(notes)
    return StatedSteps(float(found[1]), float(found[2])) if found else None
