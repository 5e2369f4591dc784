"""Tokens per second of every K at every batch size, from the bound prices and acceptance: what `tune-k` starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.draft_length.oracle import Oracle
from sim.errors import ScenarioError
from sim.experiment.analytic import decode_step_with, largest_scheduled, requests_that_fit, why_not
from sim.experiment.k_table import Rates, best_ks
from sim.scenario.arms import Arm
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.schema import Scenario
from sim.speculation.chain import ChainMethod
from sim.theory.tokens import tokens_from_survival


@dataclass(frozen=True, slots=True)
class Tunable:
    """One arm of a scenario whose K is to be chosen.

    Attributes:
        scenario: the question.
        arm: name of the arm.
        base_dir: where file names start.
        ks: K to choose from, ascending; the largest is above 0.
    """

    scenario: Scenario
    arm: str
    base_dir: Path
    ks: tuple[int, ...]

    @property
    def config(self) -> ChainMethod:
        """The arm's speculative config."""
        config = self.scenario.arms[self.arm].speculative_config
        if not isinstance(config, ChainMethod):
            raise ScenarioError(f"arms.{self.arm}: {config.method} does not draft K tokens; there is nothing to tune")
        if config.max_accepted_tokens != config.max_draft_tokens:
            raise ScenarioError(f"arms.{self.arm}: K of a tree is its number of nodes; only chains are tuned")
        return config

    def arm_with(self, most: int, ranges: Sequence[tuple[int, int, int]] | None = None) -> Arm:
        """The arm with K = `most`, or with a table of [first, last, K] ranges up to it."""
        table = None if ranges is None else tuple(ranges)
        changes = {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": table}
        config = self.config.model_copy(update=changes)
        return self.scenario.arms[self.arm].model_copy(update={"speculative_config": config, "draft_length": None})

    def oracle(self) -> Arm:
        """The arm that knows what will be accepted and what it costs, with any K up to the largest."""
        return self.arm_with(self.ks[-1]).model_copy(update={"draft_length": Oracle()})

    def bound(self, most: int) -> ArmSetup:
        """The arm bound with K = `most`: graphs are captured and slots reserved for that many drafts."""
        arms = dict(self.scenario.arms) | {self.arm: self.arm_with(most)}
        return set_up(self.scenario.model_copy(update={"arms": arms}), self.arm, self.base_dir)


def covered_ks(case: Tunable) -> tuple[int, ...]:
    """The K of `case` that the arm's acceptance says something about.

    Raises:
        ScenarioError: the closed form does not describe the arm, or no K above 0 is left.
    """
    reason = why_not(case.bound(case.config.num_speculative_tokens))
    if any(not traffic.speculate for traffic in case.scenario.workload.classes):
        reason = "a traffic class does not speculate"
    if reason:
        raise ScenarioError(f"arms.{case.arm}: K cannot be tuned: {reason}")
    known = list[int]()
    setup = case.bound(case.ks[-1])
    for k in case.ks:
        try:
            setup.survival(k)
        except ScenarioError as error:
            if not any(known):
                raise ScenarioError(f"arms.{case.arm}.acceptance: {error}") from error
            break
        known.append(k)
    return tuple(known)


def largest_batch(setup: ArmSetup, context_tokens: int) -> int:
    """The largest batch that the KV pool and the scheduler hold."""
    return max(1, min(requests_that_fit(setup, context_tokens), largest_scheduled(setup)))


def priced(case: Tunable, plain: ArmSetup, context_tokens: int, most: int) -> Rates:
    """The rates at one context, the arm bound with K = `most`, for every batch that fits it.

    Args:
        case: the arm.
        plain: decoding without a drafter.
        context_tokens: of every sequence.
        most: the largest K of the table; no larger K is tried.
    """
    setup = case.bound(most)
    batches = np.arange(1, largest_batch(setup, context_tokens) + 1)
    ks = np.array([k for k in case.ks if k <= most])
    tokens = np.array([tokens_from_survival(setup.survival(int(k))) for k in ks])
    return Rates(
        batches=batches,
        ks=ks,
        rate=tokens
        / np.array([[_seconds(setup, b, context_tokens, k) for k in ks.tolist()] for b in batches.tolist()]),
        plain=1.0 / np.array([_seconds(plain, b, context_tokens, 0) for b in batches.tolist()]),
    )


def _seconds(setup: ArmSetup, batch: int, context_tokens: int, k: int) -> float:
    return decode_step_with(setup, batch, context_tokens, k).seconds()


def settled(case: Tunable, plain: ArmSetup, context_tokens: int, tie: float) -> Rates:
    """The rates with the arm bound to the largest K that its own table uses.

    CUDA graphs and KV slots follow the largest K, so a table that does without it is priced again without it.
    """
    most = case.ks[-1]
    while True:
        rates = priced(case, plain, context_tokens, most)
        used = int(best_ks(rates, tie).max())
        if used in (0, most):
            return rates
        most = used
