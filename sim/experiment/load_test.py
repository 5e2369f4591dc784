"""Load tests simulated as they were made: the same loads and numbers of requests, measured over the whole run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sim.bench_results.base import Load, MeasuredPoint
from sim.errors import ScenarioError
from sim.experiment.evaluate import RunFailedError
from sim.experiment.executor import Died, Executor
from sim.experiment.task import Outcome, Task, guarded, measure_of
from sim.metrics.summary import Row, measure_run, summary_row
from sim.metrics.window import Loop
from sim.scenario.build import simulate
from sim.scenario.dump import scenario_hash
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario, Sweep
from sim.scenario.suggestions import no_such_arm
from sim.scenario.what_if import WhatIf
from sim.workload.arrivals.base import ArrivalProcess
from sim.workload.arrivals.closed import ClosedLoop
from sim.workload.arrivals.gamma import Gamma
from sim.workload.arrivals.poisson import Poisson
from sim.workload.lengths.fixed import Fixed
from sim.workload.workload import MAX_REQUESTS, Workload

#: Factors of `what_if`; the last three change nothing where nothing is drafted.
FACTORS = ("target_time", "host_time", "verify_time", "draft_time", "acceptance")
_SPECULATIVE = frozenset(FACTORS[2:])
#: Mean lengths that differ by more than this are another workload.
_LENGTH_TOLERANCE = 0.02
#: Drafts per step that differ by more than this are another K.
_DRAFTS_TOLERANCE = 0.1


@dataclass(frozen=True)
class LoadTest:
    """One measured point of an arm, and the scenario that simulates it."""

    arm: str
    point: MeasuredPoint
    scenario: Scenario

    @property
    def speculates(self) -> bool:
        """Whether the arm drafts."""
        return self.scenario.arms[self.arm].speculates


def load_tests(
    loaded: LoadedScenario, measured: Mapping[str, Sequence[MeasuredPoint]], take_lengths: bool
) -> tuple[list[LoadTest], list[str]]:
    """The tests in order of arms and loads, and notes on what differs between them and the scenario.

    Args:
        loaded: the scenario.
        measured: points by arm.
        take_lengths: give every request the measured mean lengths instead of the scenario's.

    Raises:
        ScenarioError: unknown arms, or a workload that no load test has; all of it at once.
    """
    scenario = loaded.scenario
    wrong = no_such_arm(measured, scenario.arms)
    if scenario.workload.arrivals.max_turns > 1:
        wrong.append("workload.arrivals: kind sessions cannot be compared with load tests of single requests")
    if take_lengths and scenario.workload.classes:
        wrong.append("workload.classes: have lengths of their own, so the measured means cannot be taken")
    wrong += [text for arm in measured if arm in scenario.arms for text in _mixed_up(scenario, arm, measured[arm])]
    if wrong:
        raise ScenarioError("\n".join(wrong))
    tests = [
        LoadTest(arm, point, _scenario_at(scenario, point, take_lengths))
        for arm in scenario.arms
        for point in sorted(measured.get(arm, ()), key=lambda point: _order(point.load))
    ]
    return tests, _notes(tests, loaded.base_dir)


def _mixed_up(scenario: Scenario, arm: str, points: Sequence[MeasuredPoint]) -> list[str]:
    """Files of a speculating server given to an arm that drafts nothing."""
    if scenario.arms[arm].speculates:
        return []
    return [
        f"{point.source}: the server drafted {point.drafts_per_step:.3g} tokens a step, arm {arm} does not speculate"
        for point in points
        if point.drafts_per_step
    ]


def _order(load: Load) -> tuple[float, float]:
    return load.max_concurrency or math.inf, load.request_rate or 0.0


def _scenario_at(scenario: Scenario, point: MeasuredPoint, take_lengths: bool) -> Scenario:
    changes: dict[str, object] = {
        "arrivals": _arrivals(point.load),
        "num_requests": min(point.completed, MAX_REQUESTS),
        "warmup_requests": None,
        "cooldown_requests": None,
    }
    if take_lengths:
        changes |= {
            "prompt_tokens": Fixed(value=max(1, round(point.mean_prompt_tokens))),
            "output_tokens": Fixed(value=max(1, round(point.mean_output_tokens))),
            "shared_prefix": None,
        }
    workload: Workload = scenario.workload.model_copy(update=changes)
    alone: Scenario = scenario.model_copy(update={"workload": workload, "sweep": Sweep()})
    return alone


def _arrivals(load: Load) -> ArrivalProcess:
    if load.max_concurrency is not None:
        return ClosedLoop(max_concurrency=load.max_concurrency)
    if load.request_rate is None:
        raise ScenarioError("a load test without concurrency and without rate")
    if load.burstiness == 1.0:
        return Poisson(request_rate=load.request_rate)
    return Gamma(request_rate=load.request_rate, burstiness=load.burstiness)


def lengths(test: LoadTest, base_dir: Path) -> tuple[tuple[str, float, float], ...]:
    """What (`prompt`, `output`), mean tokens of the scenario, mean tokens that were measured."""
    facts, point = test.scenario.workload.facts(base_dir), test.point
    return (
        ("prompt", facts.mean_prompt_tokens, point.mean_prompt_tokens),
        ("output", facts.mean_output_tokens, point.mean_output_tokens),
    )


def _notes(tests: Sequence[LoadTest], base_dir: Path) -> list[str]:
    notes = dict[str, None]()
    for test in tests:
        point = test.point
        for name, ours, theirs in lengths(test, base_dir):
            if abs(ours / theirs - 1.0) > _LENGTH_TOLERANCE:
                notes[f"{point.source}: {name}s of {theirs:,.0f} tokens on average, the scenario has {ours:,.0f}; "
                      "--lengths measured takes the measured means"] = None  # fmt: skip
        notes |= dict.fromkeys(f"{point.source}: {note}" for note in (*point.notes, *_draft_notes(test)))
    return list(notes)


def _draft_notes(test: LoadTest) -> list[str]:
    """Whether the server drafted as the arm does; drafts cut short at the end of a request make it a little less."""
    arm, drafted = test.scenario.arms[test.arm], test.point.drafts_per_step
    if drafted is None or not test.speculates:
        return []
    if drafted == 0:
        return [f"reports no drafts, but arm {test.arm} speculates: was speculation on?"]
    asked = arm.speculative_config.max_draft_tokens
    always_as_many = arm.speculative_config.one_alpha and arm.draft_length is None
    if drafted > (1 + _DRAFTS_TOLERANCE) * asked or (always_as_many and drafted < (1 - _DRAFTS_TOLERANCE) * asked):
        return [f"the server drafted {drafted:.3g} tokens a step, arm {test.arm} drafts {asked}"]
    return []


class Bench:
    """Simulates load tests under factors; every run is made once.

    Args:
        tests: what to simulate.
        base_dir: where relative file names of the scenarios start.
        replicates: runs per test, the same random numbers for all factors.
        executor: runs them; stays open.

    Attributes:
        num_runs: simulations made so far.
    """

    def __init__(self, tests: Sequence[LoadTest], base_dir: Path, replicates: int, executor: Executor) -> None:
        self._tests, self._base_dir, self._replicates, self._executor = tests, base_dir, replicates, executor
        self._rows: dict[tuple[int, str], list[Row]] = {}
        self.num_runs = 0

    def prepare(self, settings: Sequence[Mapping[str, float]]) -> None:
        """Simulate all tests under several sets of factors at once.

        Raises:
            RunFailedError: a run failed.
        """
        wanted = {
            (index, scenario.what_if.model_dump_json()): scenario
            for factors in settings
            for index, test in enumerate(self._tests)
            for scenario in [_scaled(test, factors)]
        }
        missing = {key: scenario for key, scenario in wanted.items() if key not in self._rows}
        runs = [(key, replicate) for key in missing for replicate in range(self._replicates)]
        tasks = [self._task(self._tests[key[0]].arm, missing[key], replicate) for key, replicate in runs]
        found: dict[tuple[tuple[int, str], int], Row] = {}
        for index, result in self._executor.run(run_load_test, tasks):
            outcome = Outcome(None, result.reason, 1) if isinstance(result, Died) else result
            key, replicate = runs[index]
            test = self._tests[key[0]]
            if outcome.row is None:
                raise RunFailedError(f"{test.arm}, {test.point.load}, replicate {replicate}: {outcome.error}")
            found[key, replicate] = outcome.row
            self.num_runs += 1
        for key in missing:
            self._rows[key] = [found[key, replicate] for replicate in range(self._replicates)]

    def rows(self, factors: Mapping[str, float]) -> list[list[Row]]:
        """Summary rows by test and replicate, under factors on top of the scenario's own."""
        self.prepare([factors])
        keys = [_scaled(test, factors).what_if.model_dump_json() for test in self._tests]
        return [self._rows[index, key] for index, key in enumerate(keys)]

    def _task(self, arm: str, scenario: Scenario, replicate: int) -> Task:
        cell_id = scenario_hash(scenario)[:12]
        return Task(scenario.model_dump_json(), cell_id, {}, arm, replicate, str(self._base_dir), keep_files=False)


def run_load_test(task: Task) -> Outcome:
    """Simulate one run and measure it as a client does, from the first request to the last token."""
    return guarded(_run, task)


def _run(task: Task) -> Outcome:
    scenario = Scenario.model_validate_json(task.scenario_json)
    record = simulate(scenario, task.arm, task.replicate, Path(task.base_dir))
    users = getattr(scenario.workload.arrivals, "max_concurrency", None)
    return Outcome(summary_row(measure_run(record, replace(measure_of(scenario), loop=Loop(users, whole=True)))))


def _scaled(test: LoadTest, factors: Mapping[str, float]) -> Scenario:
    """The test's scenario with factors that matter to its arm multiplied in."""
    before = test.scenario.what_if
    kept = {name: value for name, value in factors.items() if test.speculates or name not in _SPECULATIVE}
    what_if = WhatIf(**{name: getattr(before, name) * kept.get(name, 1.0) for name in FACTORS})
    scaled: Scenario = test.scenario.model_copy(update={"what_if": what_if})
    return scaled
