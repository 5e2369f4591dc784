"""Measured load tests laid over simulated ones: errors, speed-ups, and which wrong input would explain them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.bench_results.base import STATS, TIMES, Load, MeasuredPoint
from sim.calibration.fit import ErrorStats, error_stats
from sim.experiment.attribution import Attribution, Observations, attribute
from sim.experiment.compare import speedup
from sim.experiment.executor import Executor
from sim.experiment.load_test import FACTORS, Bench, LoadTest, lengths, load_tests
from sim.metrics.statistics import Floats, Interval, t_quantile
from sim.metrics.summary import Row
from sim.scenario.build import set_up
from sim.scenario.load import LoadedScenario

#: Metrics that are laid over one another, as in `summary.csv`.
METRICS = (
    "output_throughput", *(f"{stat}_{name}_ms" for name in TIMES for stat in STATS), "spec_decode_acceptance_length",
)  # fmt: skip
#: What factors are fitted to, with errors that no replicate shows: clients, networks and tokenizers in TTFT. Throughput
#: and E2E repeat TPOT; they stand in where a tool does not report it. Of ITL and TPOT, one is the step and the other
#: the step per token: together they tell time from acceptance.
FITTED = {"mean_ttft_ms": 0.10, "mean_itl_ms": 0.02, "spec_decode_acceptance_length": 0.01}
PER_TOKEN = {"mean_tpot_ms": 0.02, "mean_e2el_ms": 0.02, "output_throughput": 0.02}
#: Of speed-ups.
_CONFIDENCE, _SPEEDUPS = 0.95, ("output_throughput", "mean_tpot_ms")
#: Central differences over this factor up and down.
_STEP = 1.1
#: Requests that are longer or shorter by more than this are another workload. Chance in drawn lengths stays below it.
_OTHER = 0.15


@dataclass(frozen=True)
class Figure:
    """One measured value and the simulated one.

    Attributes:
        test: index of the load test.
        metric: as in `summary.csv`.
        measured, simulated: the latter the mean over replicates.
        error: simulated / measured - 1.
        band: what the model allows, relative: two sigma of its step times as far as they matter, and chance in both
            runs (95 %, Student's t over the replicates).
    """

    test: int
    metric: str
    measured: float
    simulated: float
    error: float
    band: float

    @property
    def inside(self) -> bool:
        """Whether the measured value lies in the model's band."""
        return abs(self.error) <= self.band + 1e-12


@dataclass(frozen=True)
class SpeedUp:
    """How much better an arm is than the baseline at one load, measured and simulated."""

    arm: str
    load: Load
    metric: str
    measured: float
    simulated: Interval


@dataclass(frozen=True)
class Overlay:
    """The comparison.

    Attributes:
        tests: the load tests.
        figures: all metrics that both sides have.
        errors: (arm, metric) -> error of the simulation over the loads.
        speedups: where arm and baseline were measured at the same load.
        attribution: which factors on inputs explain the difference; None when nothing was left to compare.
        notes: what a reader has to know.
        replicates, num_runs: simulations behind it.
        other_workload: mean lengths differ by so much that no factor means anything.
        model_error: what the cost model states for its step times, one sigma, relative; the largest of the arms.
    """

    tests: Sequence[LoadTest]
    figures: Sequence[Figure]
    errors: Mapping[tuple[str, str], ErrorStats]
    speedups: Sequence[SpeedUp]
    attribution: Attribution | None
    notes: Sequence[str]
    replicates: int
    num_runs: int
    other_workload: bool = False
    model_error: float = math.inf


def overlay(
    loaded: LoadedScenario,
    measured: Mapping[str, Sequence[MeasuredPoint]],
    executor: Executor,
    *,
    replicates: int,
    take_lengths: bool = False,
) -> Overlay:
    """Simulate the measured loads and compare.

    Args:
        loaded: the scenario; its arrivals and sweep are replaced by the measured loads.
        measured: points by arm.
        executor: runs the simulations.
        replicates: per load test.
        take_lengths: take the measured mean lengths instead of the scenario's.

    Raises:
        ScenarioError: see `load_tests`.
        RunFailedError: a run failed.
    """
    tests, notes = load_tests(loaded, measured, take_lengths)
    bench = Bench(tests, loaded.base_dir, replicates, executor)
    steps = [{name: factor} for name in FACTORS for factor in (_STEP, 1 / _STEP)]
    bench.prepare([{}, *steps])
    base = bench.rows({})
    places = [
        (index, metric)
        for index, test in enumerate(tests)
        for metric in METRICS
        if metric in test.point.metrics and _mean(base[index], metric) is not None
    ]
    surface = _Surface(bench, places)
    jacobian = surface.jacobian()
    stated = {arm: set_up(tests[i].scenario, arm, loaded.base_dir).cost.relative_error for i, arm in _firsts(tests)}
    figures = _figures(tests, places, surface, jacobian, stated, replicates)
    chosen = [at for at, place in enumerate(places) if place in set(_fitted(tests, places))]
    found = _attribute(figures, chosen, surface, jacobian) if chosen else None
    notes += _simulated_notes(tests, base)
    errors, speedups = _errors(tests, figures), _speedups(tests, base, loaded.scenario.baseline)
    other = any(abs(a / b - 1.0) > _OTHER for test in tests for _, a, b in lengths(test, loaded.base_dir))
    return Overlay(
        tests, figures, errors, speedups, found, notes, replicates, bench.num_runs, other, max(stated.values())
    )


def _mean(rows: Sequence[Row], metric: str) -> float | None:
    """Mean over replicates; None where one has no value above 0."""
    numbers = [float(value) for row in rows if isinstance(value := row.get(metric), int | float) and value > 0]
    return math.fsum(numbers) / len(numbers) if len(numbers) == len(rows) else None


class _Surface:
    """Logarithms of simulated values, at the places that were measured too, as they change with factors."""

    def __init__(self, bench: Bench, places: Sequence[tuple[int, str]]) -> None:
        self._bench, self._places = bench, places
        self.base = self.logs({})

    def logs(self, factors: Mapping[str, float]) -> Floats:
        """(N,) means over replicates."""
        rows = self._bench.rows(factors)
        means = [_mean(rows[index], metric) for index, metric in self._places]
        return np.array([math.nan if mean is None else math.log(mean) for mean in means])

    def chance(self) -> Floats:
        """(N,) one sigma of a measured run, which is one draw, and of the mean of ours; 0 for a single replicate."""
        rows = self._bench.rows({})
        logs = [[math.log(float(row[metric] or 0)) for row in rows[index]] for index, metric in self._places]
        return np.array([np.std(v, ddof=1) * math.sqrt(1 + 1 / len(v)) if len(v) > 1 else 0.0 for v in logs])

    def jacobian(self) -> dict[str, Floats]:
        """Factor -> (N,) d ln(value) / d ln(factor) at 1."""
        span = 2.0 * math.log(_STEP)
        return {name: (self.logs({name: _STEP}) - self.logs({name: 1 / _STEP})) / span for name in FACTORS}


def _figures(
    tests: Sequence[LoadTest],
    places: Sequence[tuple[int, str]],
    surface: _Surface,
    jacobian: Mapping[str, Floats],
    errors: Mapping[str, float],
    replicates: int,
) -> list[Figure]:
    reach = np.abs(jacobian["target_time"] + jacobian["draft_time"])
    chance = surface.chance() * (t_quantile(0.975, replicates - 1) / 2.0 if replicates > 1 else 1.0)
    figures = []
    for at, (index, metric) in enumerate(places):
        measured, simulated = tests[index].point.metrics[metric], math.exp(surface.base[at])
        sigma = math.hypot(reach[at] * errors[tests[index].arm], chance[at])
        figures.append(Figure(index, metric, measured, simulated, simulated / measured - 1.0, 2.0 * sigma))
    return figures


def _firsts(tests: Sequence[LoadTest]) -> list[tuple[int, str]]:
    arms = [test.arm for test in tests]
    return [(arms.index(arm), arm) for arm in dict.fromkeys(arms)]


def _fitted(tests: Sequence[LoadTest], places: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """What the factors are fitted to, see `FITTED`."""
    chosen = []
    for index, test in enumerate(tests):
        there = [metric for at, metric in places if at == index]
        chosen += [(index, metric) for metric in [m for m in PER_TOKEN if m in there][:1]]
        wanted = FITTED if test.speculates else ("mean_ttft_ms",)
        chosen += [(index, metric) for metric in wanted if metric in there]
    return chosen


def _attribute(
    figures: Sequence[Figure], chosen: Sequence[int], surface: _Surface, jacobian: Mapping[str, Floats]
) -> Attribution:
    floors = FITTED | PER_TOKEN
    picked = [figures[at] for at in chosen]
    floor = np.array([floors[figure.metric] for figure in picked])
    observed = Observations(
        np.array([math.log(figure.measured / figure.simulated) for figure in picked]),
        np.hypot(floor, surface.chance()[list(chosen)]),
        [figure.test for figure in picked],
    )
    slopes = {name: column[list(chosen)] for name, column in jacobian.items()}
    return attribute(observed, slopes, lambda factors: (surface.logs(factors) - surface.base)[list(chosen)])


def _errors(tests: Sequence[LoadTest], figures: Sequence[Figure]) -> dict[tuple[str, str], ErrorStats]:
    keys = dict.fromkeys((tests[figure.test].arm, figure.metric) for figure in figures)
    found = {}
    for arm, metric in keys:
        mine = [each for each in figures if tests[each.test].arm == arm and each.metric == metric]
        pairs = np.array([[each.simulated, each.measured] for each in mine])
        found[arm, metric] = error_stats(pairs[:, 0], pairs[:, 1])
    return found


def _speedups(tests: Sequence[LoadTest], base: Sequence[Sequence[Row]], baseline: str) -> list[SpeedUp]:
    """Of every test whose load the baseline was measured at too."""
    plain = {test.point.load: index for index, test in enumerate(tests) if test.arm == baseline}
    pairs = [
        (index, plain[test.point.load])
        for index, test in enumerate(tests)
        if test.arm != baseline and test.point.load in plain
    ]
    found = [_speedup(tests, base, ours, theirs, metric) for ours, theirs in pairs for metric in _SPEEDUPS]
    return [each for each in found if each is not None]


def _speedup(
    tests: Sequence[LoadTest], base: Sequence[Sequence[Row]], ours: int, theirs: int, metric: str
) -> SpeedUp | None:
    values = tests[ours].point.metrics.get(metric), tests[theirs].point.metrics.get(metric)
    if values[0] is None or values[1] is None:
        return None
    measured = speedup([(values[0], values[1])], metric, _CONFIDENCE)
    pairs = [(float(a[metric] or 0), float(b[metric] or 0)) for a, b in zip(base[ours], base[theirs], strict=True)]
    simulated = speedup(pairs, metric, _CONFIDENCE)
    if measured is None or simulated is None:
        return None
    return SpeedUp(tests[ours].arm, tests[ours].point.load, metric, measured.estimate, simulated)


def _simulated_notes(tests: Sequence[LoadTest], base: Sequence[Sequence[Row]]) -> list[str]:
    notes = []
    for test, rows in zip(tests, base, strict=True):
        failed = max(int(row["failed"] or 0) for row in rows)
        if failed:
            notes.append(f"{test.arm}, {test.point.load}: {failed} simulated requests were rejected or never finished")
    return notes
