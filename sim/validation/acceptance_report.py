"""The report of `specsim validate acceptance` as Markdown, and its targets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sim.calibration.acceptance_moments import MAX_DRAFTS, Moments
from sim.validation.acceptance import LEVEL_AT, DataSet, Part, Score, relative_errors
from sim.validation.markdown import table
from sim.validation.suite_page import NO_PICTURES, Pictures, page, shown

#: K at which spread and correlation are held to their targets.
_SPREAD_AT = 5

_INTRODUCTION = f"""# Acceptance: models against recorded sequences

Written by `specsim validate acceptance`. Tokens per step count the bonus token; degenerate requests are left out. Every
model is drawn on the recorded output lengths, many times over, so that its own noise is below 0.3 %.

- **K = 1..10**: error of tokens per step, in per cent. **spread**: error of the standard deviation over requests of
  tokens per step at K = {_SPREAD_AT}, in per cent. **lag-1**: difference of the correlation of neighbouring steps.
- **sampling error**: one standard error of what is scored against, by bootstrap over requests. Between two halves,
  errors of sqrt(2) times that are to be expected of a perfect model.
- **left-out half**: requests sorted by output length and taken in turn; fitted on one half, scored on the other.
- **the other half itself**: what the fitted half measured. No model can be expected to do better.
- **level at K={LEVEL_AT}**: only tokens per step at K = {LEVEL_AT} of this text is known, as for a user with new text;
  a shipped profile of other text is moved to it. The spread does not move with it: state `request_sd` if known.
"""


class Target(NamedTuple):
    """What is asked of a score, and what was found; in per cent, or correlation for lag-1.

    Attributes:
        halves_differ: what the fitted half itself scores: the difference that is in the data.
    """

    name: str
    limit: float
    found: float
    sampling_error: float
    halves_differ: float

    @property
    def verdict(self) -> str:
        """`met`, or missed by how much, and whether the halves differ by more than the limit themselves."""
        excess = abs(self.found) - self.limit
        if excess <= 0:
            return "met"
        as_data = ", no more than the halves themselves" if abs(self.halves_differ) > self.limit else ""
        return f"missed by {excess:.2g}{as_data}"


def render(sets: Sequence[DataSet], pictures: Pictures = NO_PICTURES) -> str:
    """The whole report."""
    curves = shown(pictures, "acceptance-curves")
    return page(_INTRODUCTION, "## Targets\n\n" + _target_table(sets), curves, *(_set_text(found) for found in sets))


def targets(sets: Sequence[DataSet]) -> list[Target]:
    """On left-out halves tokens per step within 2 %, spread within 10 %, lag-1 within 0.05; and an exact replay."""
    found = [target for one in sets for part in one.halves for target in _part_targets(one, part)]
    return [*found, *(_replay_target(one) for one in sets if one.replay)]


def _part_targets(one: DataSet, part: Part) -> Iterator[Target]:
    noise = relative_errors(_plus(part.measured, part.errors), part.measured)
    halves = relative_errors(part.scores[-1].expected, part.measured)
    at = _SPREAD_AT - 1
    for score in part.scores:
        if score.target:
            found = relative_errors(score.expected, part.measured)
            worst = int(np.argmax(np.abs(found.tokens_per_step)))
            name = f"{one.name} {one.method}, {score.model} {score.how}"
            tokens = (100 * float(each.tokens_per_step[worst]) for each in (found, noise, halves))
            spread = (100 * float(each.request_sd[at]) for each in (found, noise, halves))
            lag = (float(each.lag_correlation[at]) for each in (found, noise, halves))
            yield Target(f"{name}: tokens per step, worst K, %", 2.0, *tokens)
            yield Target(f"{name}: spread, %", 10.0, *spread)
            yield Target(f"{name}: lag-1", 0.05, *lag)


def _replay_target(one: DataSet) -> Target:
    wrong = 0 if one.replay is None else one.replay.accepted + (one.replay.proposed or 0)
    return Target(
        f"{one.name} {one.method}, token streams replayed: positions that differ", 1.0, float(wrong), 0.0, 0.0
    )


def _plus(measured: Moments, errors: Moments) -> Moments:
    return Moments(
        measured.tokens_per_step + errors.tokens_per_step,
        measured.request_sd + errors.request_sd,
        measured.lag_correlation + errors.lag_correlation,
    )


def _target_table(sets: Sequence[DataSet]) -> str:
    rows = [[t.name, f"{t.limit:g}", *_signed(t), t.verdict] for t in targets(sets)]
    return table(["target", "limit", "found", "sampling error", "the halves differ by", "verdict"], rows)


def _signed(target: Target) -> tuple[str, str, str]:
    return f"{target.found:+.3g}", f"{target.sampling_error:.2g}", f"{target.halves_differ:+.3g}"


def _set_text(one: DataSet) -> str:
    lines = [f"## {one.name}, {one.method}", f"{one.requests} requests, {one.positions:,} decoded tokens."]
    lines += [_part_table(part, "Left-out half: ") for part in one.halves]
    lines.append(_part_table(one.whole, "All requests: "))
    if one.replay:
        drafts = "" if one.replay.proposed is None else f", {one.replay.proposed} with other drafts"
        lines.append(
            f"Token streams replayed by prompt lookup (3 to 7 tokens, earliest occurrence): {one.replay.accepted} of "
            f"{one.replay.positions:,} positions with another accepted length{drafts}."
        )
    return "\n\n".join(lines)


def _part_table(part: Part, what: str) -> str:
    head = ["", *(f"K={k}" for k in range(1, MAX_DRAFTS + 1)), "spread", "lag-1"]
    noise = relative_errors(_plus(part.measured, part.errors), part.measured)
    at = _SPREAD_AT - 1
    tokens = [f"{value:.3f}" for value in part.measured.tokens_per_step]
    rows = [
        [f"{what}measured", *tokens, f"{part.measured.request_sd[at]:.3f}", f"{part.measured.lag_correlation[at]:.3f}"],
        ["sampling error, %", *_cells(noise, at, "")],
        *([_name(score), *_cells(relative_errors(score.expected, part.measured), at, "+")] for score in part.scores),
    ]
    return table(head, rows)


def _name(score: Score) -> str:
    return f"{score.model}, {score.how}{' (fitted to these requests)' if score.in_sample else ''}"


def _cells(found: Moments, at: int, sign: str) -> list[str]:
    tokens = [f"{100 * value:{sign}.1f}" for value in found.tokens_per_step]
    return [*tokens, f"{100 * found.request_sd[at]:{sign}.0f} %", f"{found.lag_correlation[at]:{sign}.3f}"]
