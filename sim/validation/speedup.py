"""The suite `speedup`: published comparisons of speculative and plain decoding, each driven as its source did.

Nothing is fitted here. Acceptance is the source's own: recorded sequences, or the mean that the row states. Where it
states none, the mean that explains the smallest load of the curve predicts the others, and the smallest is not
scored.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.errors import SimError
from sim.experiment.analytic import decode_step, speedup_and_band
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import load_mapping
from sim.validation import as_published
from sim.validation.as_published import UnrunnableError
from sim.validation.cases import Case, NotRun, build_cases
from sim.validation.harness.base import ArmTimes, Drive
from sim.validation.harness.clones import clones
from sim.validation.harness.load import loaded
from sim.validation.harness.steps import stated_steps, step_times
from sim.validation.published import PublishedRow, read_published
from sim.validation.scores import Score

_DRIVES: Mapping[str, Drive] = {"clones": clones, "closed": loaded, "open": loaded}

#: How well a solved mean must explain the speed-up that it is solved from, and how often that is tried.
_SOLVED, _MOST_TRIES = 5e-4, 30


class Found(NamedTuple):
    """A case that was run.

    Attributes:
        tokens_per_step: what was used; None for recorded sequences.
        scores: of the case; no `speed-up` where the acceptance was solved from it.
        acceptance: where it comes from.
    """

    case: Case
    tokens_per_step: float | None
    scores: tuple[Score, ...]
    acceptance: str

    @property
    def speedup(self) -> Score | None:
        """Its speed-up, where it is scored."""
        return next((score for score in self.scores if score.quantity == "speed-up"), None)


class Speedups(NamedTuple):
    """The whole suite: cases that were run, rows that were not, with the reason, and rows of another simulator."""

    found: tuple[Found, ...]
    not_run: tuple[NotRun, ...]
    simulated: tuple[PublishedRow, ...]

    @property
    def scores(self) -> list[Score]:
        """All of them; a plain arm that several rows share counts once."""
        once: dict[object, Score] = {}
        for score in (score for found in self.found for score in found.scores):
            about = (score.group, score.load, score.measured) if score.quantity == "plain" else score.name
            once.setdefault((score.quantity, about), score)
        return list(once.values())


def run_speedups(folder: Path) -> Speedups:
    """Run every case of a folder's published tables.

    Raises:
        ScenarioError: a table is malformed.
    """
    rows = read_published(folder)
    cases, not_run = build_cases(rows, folder)
    peers = Peers(rows)
    curves: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        alone = (case.row.case_id,)
        curves[alone if case.drive == "steps" else case.curve].append(case)
    runner, found = Runner(), []
    for curve in curves.values():
        try:
            found += list(_curve(runner, sorted(curve, key=lambda case: case.load), peers))
        except SimError as error:
            not_run += [NotRun(case.row, str(error).splitlines()[0]) for case in curve]
    return Speedups(tuple(found), tuple(not_run), tuple(row for row in rows if row.simulated))


class Peers:
    """What other simulators say, by what a row is about."""

    def __init__(self, rows: Sequence[PublishedRow]) -> None:
        self._known = {}
        for row in rows:
            if row.simulated and row.speedup and (key := self._key(row)):
                self._known[key] = row.speedup

    def of(self, row: PublishedRow) -> float | None:
        """The speed-up that one of them gives for a measured row."""
        key = self._key(row)
        return None if key is None else self._known.get(key)

    def _key(self, row: PublishedRow) -> tuple[object, ...] | None:
        try:
            drafts = as_published.drafts(row.k_or_tree, row.notes)
            what = as_published.method(row.method)
        except UnrunnableError:
            return None
        return (row.target_model, row.dataset, what, json.dumps(drafts), row.load)


class Runner:
    """Runs arms of cases, each distinct one once."""

    def __init__(self) -> None:
        self._known: dict[str, ArmTimes] = {}

    def arm(self, case: Case, arm: str, tokens: float | None, *, naive: bool = False) -> ArmTimes:
        """Drive one arm of a case."""
        data = case.scenario(tokens, naive=naive)
        mine = {**data, "arms": {arm: data["arms"][arm]}}
        key = json.dumps([case.drive, case.recorded, mine], default=str)
        if key not in self._known:
            self._known[key] = _DRIVES[case.drive](load_mapping(data).scenario, arm, case.recorded)
        return self._known[key]

    def speedup(self, case: Case, tokens: float | None, *, naive: bool = False) -> float:
        """Of the metric that the source measured; above 1 = faster."""
        plain, spec = (
            self.arm(case, arm, tokens, naive=naive).in_unit_of(case.row.metric) for arm in ("plain", "spec")
        )
        return plain / spec if case.row.is_latency else spec / plain

    def solved(self, case: Case, measured: float, *, naive: bool = False) -> float:
        """The mean tokens per step that gives this speed-up (false position).

        Raises:
            UnrunnableError: no mean does.
        """
        low, high = 1.0, as_published.depth(case.config) + 1.0
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


def _curve(runner: Runner, cases: Sequence[Case], peers: Peers) -> Iterator[Found]:
    """Cases that differ in the load only, smallest first."""
    if cases[0].drive == "steps":
        yield from (_steps(case) for case in cases)
    elif cases[0].recorded or all(case.row.tokens_per_step for case in cases):
        for case in cases:
            tokens = None if case.recorded else case.row.tokens_per_step
            how = f"sequences {case.recorded.path.name}" if case.recorded else f"stated {tokens:g}"
            yield _found(runner, case, (tokens, tokens), how, peers)
    else:
        first = cases[0]
        tokens, naive = (runner.solved(first, _speedup_of(first), naive=naive) for naive in (False, True))
        yield Found(first, tokens, tuple(_plain(runner, first, (tokens, naive))), "solved here")
        for case in cases[1:]:
            how = f"{tokens:.2f}, solved at {first.row.load}"
            yield _found(runner, case, (tokens, naive), how, peers)


def _speedup_of(case: Case) -> float:
    speedup = case.row.measured_speedup
    if speedup is None:
        raise UnrunnableError("no speed-up")
    return speedup


def group_of(case: Case) -> str:
    """Heading of a case in reports."""
    row = case.row
    return f"{row.source}, {row.table}: {row.target_model}, {row.gpu}, {row.engine}"


#: Mean tokens per step with our prices and with naive ones; None for recorded sequences.
Tokens = tuple[float | None, float | None]


def _found(runner: Runner, case: Case, tokens: Tokens, how: str, peers: Peers) -> Found:
    """Run a case."""
    row = case.row
    priced = runner.speedup(case, tokens[0])
    low, high = _band(case, tokens[0], runner.arm(case, "plain", tokens[0]))
    speedup = Score(
        row.case_id, group_of(case), "speed-up", row.load, priced, _speedup_of(case), priced * low, priced * high,
        runner.speedup(case, tokens[1], naive=True), peers.of(row), "; ".join((f"acceptance {how}", *case.remarks)),
    )  # fmt: skip
    return Found(case, tokens[0], (speedup, *_plain(runner, case, tokens)), how)


def _plain(runner: Runner, case: Case, tokens: Tokens) -> Iterator[Score]:
    """The plain arm's own figure, where the row has it."""
    row = case.row
    if not row.plain_value or ("latency" in row.metric and case.lengths.assumed):
        return  # the latency of whole requests is that of their lengths
    times = runner.arm(case, "plain", tokens[0])
    ours, error = times.in_unit_of(row.metric), _plain_step_error(case, tokens[0], times)
    naive = runner.arm(case, "plain", tokens[1], naive=True).in_unit_of(row.metric)
    band = ours * (1 - error), ours * (1 + error)
    yield Score(row.case_id, group_of(case), "plain", row.load, ours, row.plain_value, *band, naive)


def _setups(case: Case, tokens: float | None) -> tuple[ArmSetup, ArmSetup]:
    scenario = load_mapping(case.scenario(tokens)).scenario
    return set_up(scenario, "spec", Path()), set_up(scenario, "plain", Path())


def _steady(case: Case, plain: ArmTimes) -> tuple[int, int]:
    """Batch and context of a steady decode step."""
    batch = case.batch if case.drive != "open" else round(plain.running)
    return max(1, batch), case.lengths.prompt + case.lengths.output // 2


def _band(case: Case, tokens: float | None, plain: ArmTimes) -> tuple[float, float]:
    """Factors of the one-sigma band on the speed-up, from the closed form."""
    priced, low, high = speedup_and_band(*_setups(case, tokens), *_steady(case, plain))
    return low / priced, high / priced


def _plain_step_error(case: Case, tokens: float | None, plain: ArmTimes) -> float:
    """One sigma of a plain step."""
    setup = _setups(case, tokens)[1]
    return decode_step(setup, *_steady(case, plain)).error(setup.cost.relative_error)


def _steps(case: Case) -> Found:
    """T_verify / T_plain, the plain step, and the speed-up with the drafter's time as the source measured it.

    Raises:
        UnrunnableError: the row does not take its steps apart.
    """
    row, stated = case.row, stated_steps(case.row.notes)
    if stated is None or not row.plain_value or not row.tokens_per_step:
        raise UnrunnableError("times of drafting and verification, or tokens per step not stated")
    context, group = int(row.input_len), group_of(case)
    times, errors = [], []
    for naive in (False, True):
        setup = set_up(load_mapping(case.scenario(None, naive=naive)).scenario, "plain", Path())
        times.append(step_times(setup, case.batch, context, case.num_drafts))
        errors.append(decode_step(setup, case.batch, context).error(setup.cost.relative_error))
    gains = [row.tokens_per_step * one.plain_ms / (stated.drafts_ms + one.step_ms) for one in times]
    ours, naive_times = times
    scores = (
        Score(row.case_id, group, "speed-up", row.load, gains[0], _speedup_of(case), naive=gains[1],
              remarks="; ".join(("drafting as published", *case.remarks))),
        Score(row.case_id, group, "T_verify/T_plain", row.load, ours.ratio, stated.verify_ms / row.plain_value,
              naive=naive_times.ratio),
        Score(row.case_id, group, "plain", row.load, ours.plain_ms, row.plain_value, ours.plain_ms * (1 - errors[0]),
              ours.plain_ms * (1 + errors[0]), naive_times.plain_ms),
    )  # fmt: skip
    return Found(case, row.tokens_per_step, scores, f"stated {row.tokens_per_step:g}")
