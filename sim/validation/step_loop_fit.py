"""The host time of a loop whose source takes its steps apart: fitted to plain steps of one model, scored on the rest.

Written for MagicDec (arXiv 2408.11049, table 3); the value found is that of `sim/hardware/data/engines/magicdec.yaml`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.scenario.build import set_up
from sim.scenario.load import load_mapping
from sim.validation.case import Case
from sim.validation.cases import build_cases
from sim.validation.harness.steps import stated_steps, step_times
from sim.validation.published import read_published

#: The model whose plain steps are fitted, and the engine.
FITTED_MODEL, ENGINE = "Llama-2-7B-32K", "magicdec"


class LoopStep(NamedTuple):
    """One cell in milliseconds: kernels and cost per row as priced, and what the source measured."""

    model: str
    plain_ms: float
    verify_ms: float
    plain_measured_ms: float
    verify_measured_ms: float


class LoopFit(NamedTuple):
    """Host time per step.

    Attributes:
        host_ms, error_ms: the value and its one-sigma error.
        fitted, left_out: mean error of plain steps in per cent, of the fitted model and of the others.
        verify: mean error of all passes that verify drafts, none of which was fitted.
    """

    host_ms: float
    error_ms: float
    fitted: float
    left_out: float
    verify: float


def loop_steps(folder: Path) -> list[LoopStep]:
    """All cells of a folder with a `published` table that were timed with the engine."""
    cases, _ = build_cases(read_published(folder), folder)
    return [_step(case) for case in cases if case.drive == "steps" and case.engine == ENGINE]


def _step(case: Case) -> LoopStep:
    setup = set_up(load_mapping(case.scenario(None)).scenario, "plain", Path())
    times, stated = (
        step_times(setup, case.batch, int(case.row.input_len), case.num_drafts),
        stated_steps(case.row.notes),
    )
    if stated is None or not case.row.plain_value:
        raise ValueError(f"{case.row.case_id}: its steps are not taken apart")
    host = 1e3 * setup.cost.host.seconds(case.batch)
    return LoopStep(
        case.row.target_model, times.plain_ms - host, times.verify_ms - host, case.row.plain_value, stated.verify_ms
    )


def fit_host(steps: Sequence[LoopStep], model: str = FITTED_MODEL) -> LoopFit:
    """Least squares of relative errors of the plain steps of `model`: linear in the one unknown."""
    own = [step for step in steps if step.model == model]
    weights = np.array([1.0 / step.plain_measured_ms for step in own])
    missing = np.array([1.0 - step.plain_ms / step.plain_measured_ms for step in own])
    host = float(weights @ missing / (weights @ weights))
    spread = np.sqrt(np.sum((missing - host * weights) ** 2) / (len(own) - 1))
    others = [step for step in steps if step.model != model]
    fitted, left_out = (_mean_error((s.plain_ms + host, s.plain_measured_ms) for s in some) for some in (own, others))
    verify = _mean_error((step.verify_ms + host, step.verify_measured_ms) for step in steps)
    return LoopFit(host, float(spread / np.sqrt(weights @ weights)), fitted, left_out, verify)


def _mean_error(pairs: Iterable[tuple[float, float]]) -> float:
    return 100.0 * float(np.mean([abs(predicted / measured - 1.0) for predicted, measured in pairs]))
