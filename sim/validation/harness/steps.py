"""Decode steps of one uniform batch at one context: what research loops time, and shares of a step."""

import re
from typing import NamedTuple

from sim.cost.passes import plain_pass, verify_pass
from sim.experiment.analytic import decode_step
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
    seconds = [target.price(p).seconds for p in (plain_pass(batch, context_tokens), verify_pass(batch, context_tokens, num_drafts))]
    return StepTimes(*(1e3 * (one + host) for one in seconds))


class Shares(NamedTuple):
    """Parts of a step, adding up to 1; `overhead` is the host."""

    draft: float
    verify: float
    overhead: float


def step_shares(setup: ArmSetup, batch: int, context_tokens: int) -> Shares:
    """Where the time of a decode step goes."""
    step = decode_step(setup, batch, context_tokens)
    total = step.seconds()
    overhead = total - step.gpu_s
    return Shares(step.draft_s / total, step.target.seconds / total, overhead / total)


_STATED = re.compile(r"T_draft=([\d.]+) ms, T_verify=([\d.]+) ms")


class StatedSteps(NamedTuple):
    """Milliseconds that a source states of a speculative step: all drafts together, and their verification."""

    drafts_ms: float
    verify_ms: float


def stated_steps(notes: str) -> StatedSteps | None:
    """What a row's notes say, if they do."""
    found = _STATED.search(notes)
    return StatedSteps(float(found[1]), float(found[2])) if found else None
