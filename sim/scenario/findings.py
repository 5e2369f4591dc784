"""Findings between values, and what a check of them is given.

A check is a generator of findings over a scenario whose single values are right. It names the sections it reads, so
that it is left out when one of them is broken and its conclusions would be made up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath

from sim.errors import ScenarioError
from sim.hardware.gpu import Gpu
from sim.models.model import Model
from sim.scenario.document import Path
from sim.scenario.engine import EngineArgs
from sim.scenario.schema import Scenario
from sim.workload.workload import WorkloadFacts


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one place of a scenario; an error unless `is_note`."""

    path: Path
    message: str
    is_note: bool = False
    at_key: bool = False


def note(path: Path, message: str) -> Finding:
    """A finding that does not stop the run."""
    return Finding(path, message, is_note=True)


@dataclass(frozen=True)
class Context:
    """A scenario with what its names stand for; None where the name stands for nothing."""

    scenario: Scenario
    base_dir: FilePath

    @cached_property
    def gpu(self) -> Gpu | None:
        """The GPU, overrides applied."""
        try:
            return self.scenario.hardware.load()
        except ScenarioError:
            return None

    @cached_property
    def model(self) -> Model | None:
        """The target model."""
        try:
            return self.scenario.model.load(self.base_dir)
        except ScenarioError:
            return None

    @cached_property
    def engine(self) -> EngineArgs | None:
        """Engine arguments with all defaults filled in."""
        if self.gpu is None:
            return None
        return self.scenario.engine.resolved(self.gpu, self.model.max_model_len if self.model else None)

    @cached_property
    def facts(self) -> WorkloadFacts | None:
        """Sizes of the workload; None when its trace cannot be read."""
        try:
            return self.scenario.workload.facts(self.base_dir)
        except ScenarioError:
            return None

    @property
    def max_model_len(self) -> int | None:
        """Longest context, if it can be known."""
        return self.engine.max_model_len if self.engine else self.scenario.engine.max_model_len


Check = Callable[[Context], Iterator[Finding]]
#: The sections a check reads, and the check; filled by the modules that `sim.scenario.checks` imports.
CHECKS: list[tuple[frozenset[str], Check]] = []


def reads(*sections: str) -> Callable[[Check], Check]:
    """Register a check that reads these top-level sections."""

    def register(check: Check) -> Check:
        CHECKS.append((frozenset(sections), check))
        return check

    return register
