"""Decode steps of one uniform batch at one context: what research loops time."""

import re
from typing import NamedTuple

from sim.cost.passes import plain_pass, verify_pass
from sim.scenario.build import ArmSetup


class StepTimes(NamedTuple):
    """Milliseconds of a plain decode step and of the target's pass over so many drafts, host included in both."""

    plain_ms: float
    verify_ms: float

    @property
    def ratio(self) -> float:
        """T_verify / T_plain."""
        return self.verify_ms / self.plain_ms


def step_times(plain: ArmSetup, batch: int, context_tokens: int, num_drafts: int) -> StepTimes:
    """Price both."""
    host = plain.cost.host.seconds(batch)
    target = plain.cost.target
    seconds = [
        target.price(p).seconds
        for p in (plain_pass(batch, context_tokens), verify_pass(batch, context_tokens, num_drafts))
    ]
    return StepTimes(*(1e3 * (one + host) for one in seconds))


_STATED = re.compile(r"T_draft=([\d.]+) ms, T_verify=([\d.]+) ms")


class StatedSteps(NamedTuple):
    """Milliseconds that a source states of a speculative step: all drafts together, and their verification."""

    drafts_ms: float
    verify_ms: float


def stated_steps(notes: str) -> StatedSteps | None:
    """What a row's notes say, if they do."""
    found = _STATED.search(notes)
    return StatedSteps(float(found[1]), float(found[2])) if found else None
