"""The suite `speedup`: published comparisons of speculative and plain decoding, each driven as its source did.

Nothing is fitted here. Acceptance is the source's own: recorded sequences, or the mean that the row states. Where it
states none, the mean that explains the smallest load of the curve predicts the others, and the smallest is not
scored.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.errors import SimError
from sim.experiment.analytic import decode_step, speedup_and_band
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import load_mapping
from sim.validation import stated_method
from sim.validation.as_published import UnrunnableError
from sim.validation.case import Case
from sim.validation.cases import NotRun, build_cases, first_line
from sim.validation.harness.base import ArmTimes
from sim.validation.harness.steps import stated_steps, step_times
from sim.validation.levels import Levelled, Tokens, Unlevelled, levelled
from sim.validation.published import PublishedRow, read_published
from sim.validation.runner import Runner
from sim.validation.scores import Score
from sim.validation.theory_rows import theory_scores


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
    """The whole suite: cases that were run, rows that were not, with the reason, and rows of another simulator.

    Attributes:
        found: what counts.
        advisory: run and shown, and outside of all targets.
        theory: the closed form for rows that cannot be run; advisory too.
    """

    found: tuple[Found, ...]
    not_run: tuple[NotRun, ...]
    simulated: tuple[PublishedRow, ...]
    advisory: tuple[Found, ...] = ()
    theory: tuple[Score, ...] = ()

    @property
    def scores(self) -> list[Score]:
        """All that count; a plain arm that several rows share counts once."""
        return _once(self.found)

    @property
    def advisory_scores(self) -> list[Score]:
        """Those outside of all targets."""
        return _once(self.advisory)


def _once(found: Iterable[Found]) -> list[Score]:
    once: dict[object, Score] = {}
    for score in (score for one in found for score in one.scores):
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
    peers, runner = Peers(rows), Runner()
    found: list[Found] = []
    for one in _levelled(runner, cases):
        try:
            if isinstance(one, Unlevelled):
                raise UnrunnableError(one.reason)
            found.append(_steps(one.case) if one.case.drive == "steps" else _found(runner, one, peers))
        except SimError as error:
            not_run.append(NotRun(one.case.row, first_line(error)))
    scored, advisory = (tuple(one for one in found if one.case.advisory is apart) for apart in (False, True))
    theory, not_run = theory_scores(not_run)
    return Speedups(scored, tuple(not_run), tuple(row for row in rows if row.simulated), advisory, tuple(theory))


def _levelled(runner: Runner, cases: Sequence[Case]) -> Iterator[Levelled | Unlevelled]:
    """Each case with its acceptance; what is scored never rests on an advisory row."""
    sweeps: dict[tuple[object, ...], list[Case]] = defaultdict(list)
    for case in cases:
        if case.drive == "steps":
            tokens = case.row.tokens_per_step
            yield Levelled(case, (tokens, tokens), "")
        else:
            sweeps[(*case.sweep, case.advisory)].append(case)
    for sweep in sweeps.values():
        yield from levelled(runner, sweep)


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
            drafts = stated_method.drafts(row.k_or_tree, row.notes)
            what = stated_method.method(row.method)
        except UnrunnableError:
            return None
        return (row.target_model, row.dataset, what, json.dumps(drafts), row.load)


def group_of(case: Case) -> str:
    """Heading of a case in reports."""
    row = case.row
    return f"{_listed(row.source, row.table)}: {_listed(row.target_model, row.gpu, row.engine)}"


def _listed(*parts: str) -> str:
    """Those that are stated."""
    return ", ".join(filter(None, parts))


def _found(runner: Runner, one: Levelled, peers: Peers) -> Found:
    """Run a case."""
    case, tokens = one.case, one.tokens
    plain = tuple(_plain(runner, case, tokens))
    if one.solved:
        return Found(case, tokens[0], plain, one.how)
    row, priced = case.row, runner.speedup(case, tokens[0])
    low, high = _band(case, tokens[0], runner.arm(case, "plain", tokens[0]))
    speedup = Score(
        row.case_id, group_of(case), "speed-up", row.load, priced, _speedup_of(case), priced * low, priced * high,
        runner.speedup(case, tokens[1], naive=True), peers.of(row), "; ".join((f"acceptance {one.how}", *case.remarks)),
    )  # fmt: skip
    return Found(case, tokens[0], (speedup, *plain), one.how)


def _speedup_of(case: Case) -> float:
    speedup = case.row.measured_speedup
    if speedup is None:
        raise UnrunnableError("no speed-up")
    return speedup


def _plain(runner: Runner, case: Case, tokens: Tokens) -> Iterator[Score]:
    """The plain arm's own figure, where the row has it."""
    row = case.row
    whole = case.metric.figure in ("latency", "TTFT")  # of whole requests: of their lengths
    if not row.plain_value or not case.metric.absolute or (whole and case.lengths.assumed):
        return
    times = runner.arm(case, "plain", tokens[0])
    ours, error = runner.figure(case, "plain", tokens[0]), _plain_step_error(case, tokens[0], times)
    naive = runner.figure(case, "plain", tokens[1], naive=True)
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
    context, group = _context(case), group_of(case)
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


def _context(case: Case) -> int:
    if "prompt" in case.lengths.assumed:
        raise UnrunnableError(f"context of the steps not stated: {case.row.input_len!r}")
    return case.lengths.prompt
