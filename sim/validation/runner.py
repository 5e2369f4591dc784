"""Runs arms of cases, and finds the acceptance that explains a speed-up."""

import json
from collections.abc import Mapping

from sim.hardware.engine_profile import EngineProfile
from sim.scenario.load import load_mapping
from sim.validation import stated_method
from sim.validation.as_published import UnrunnableError
from sim.validation.candidate import with_engine
from sim.validation.case import Case
from sim.validation.harness.base import ArmTimes, Drive
from sim.validation.harness.clones import clones
from sim.validation.harness.load import loaded

_DRIVES: Mapping[str, Drive] = {"clones": clones, "closed": loaded, "open": loaded}

#: How well a solved mean must explain the speed-up that it is solved from, and how often that is tried.
_SOLVED, _MOST_TRIES = 5e-4, 30


class Runner:
    """Runs arms of cases, each distinct one once.

    Args:
        engine: whose costs are taken in the place of each case's own; None for its own. Naive runs have none.
    """

    def __init__(self, engine: EngineProfile | None = None) -> None:
        self._known: dict[str, ArmTimes] = {}
        self._engine = engine

    def arm(self, case: Case, arm: str, tokens: float | None, *, naive: bool = False) -> ArmTimes:
        """Drive one arm of a case."""
        data = case.scenario(tokens, naive=naive)
        mine = {**data, "arms": {arm: data["arms"][arm]}}
        key = json.dumps([case.drive, case.recorded, mine], default=str)
        if key not in self._known:
            scenario = load_mapping(data).scenario
            if self._engine is not None and not naive:
                scenario = with_engine(scenario, self._engine)
            self._known[key] = _DRIVES[case.drive](scenario, arm, case.recorded)
        return self._known[key]

    def figure(self, case: Case, arm: str, tokens: float | None, *, naive: bool = False) -> float:
        """What the source measured of an arm, in its unit."""
        return case.metric.of(self.arm(case, arm, tokens, naive=naive), case.load, case.num_gpus)

    def speedup(self, case: Case, tokens: float | None, *, naive: bool = False) -> float:
        """Of the metric that the source measured; above 1 = faster."""
        plain, spec = (self.figure(case, arm, tokens, naive=naive) for arm in ("plain", "spec"))
        return plain / spec if case.metric.is_time else spec / plain

    def solved(self, case: Case, measured: float, *, naive: bool = False) -> float:
        """The mean tokens per step that gives this speed-up (false position).

        Raises:
            UnrunnableError: no mean does.
        """
        low, high = 1.0, stated_method.depth(case.config) + 1.0
        below, above = (self.speedup(case, x, naive=naive) - measured for x in (low, high))
        if below > 0 or above < 0:
            raise UnrunnableError(f"no acceptance explains the speed-up at {case.row.load}")
        tokens = low
        for _ in range(_MOST_TRIES):
            tokens = low - below * (high - low) / (above - below)
            gap = self.speedup(case, tokens, naive=naive) - measured
            if abs(gap) < _SOLVED * measured:
                break
            if gap < 0:
                low, below, above = tokens, gap, above / 2
            else:
                high, above, below = tokens, gap, below / 2
        return tokens
