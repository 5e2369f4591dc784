"""Simulated break-even points against the closed forms of `theory.break_even`.

Equal batch: the production server with hand-made costs. Equal concurrency and equal request rate: whole experiments, as
`specsim breakeven` runs them, on costs for which the answer is known.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cost.base import ForwardPass, PassPrice
from sim.experiment.axes import AXES
from sim.experiment.executor import local_executor
from sim.experiment.questions import Search, search
from sim.experiment.rounds import Work
from sim.scenario.load import LoadedScenario, load_mapping
from sim.theory.break_even import (
    FluidLoad,
    PassTimes,
    additive_break_even,
    additive_pass_s,
    roofline_break_even,
    roofline_pass_s,
)
from sim.theory.crossings import crossings
from sim.theory.tokens import expected_tokens

TARGET = PassTimes(weights_s=4.8e-3, token_s=150e-6, fixed_s=2e-4)
DRAFTER = PassTimes(weights_s=1.5e-4, token_s=4e-6, fixed_s=1e-4)
FORMS = [(roofline_pass_s, roofline_break_even), (additive_pass_s, additive_break_even)]


@dataclass(frozen=True)
class Priced:
    """Passes priced by one of the two ideal forms; all sequences of a pass verify the same number of tokens."""

    form: Callable[[PassTimes, float, int], float]

    def price(self, forward: ForwardPass) -> PassPrice:
        seconds = self.form(TARGET, forward.num_seqs, max(1, forward.num_tokens // max(1, forward.num_seqs)))
        return PassPrice(seconds, seconds, 0.0, 0.0, 0.0, 0.0, True)


@dataclass(frozen=True)
class Drafts:
    """K passes of the drafter's network, additive."""

    def draft_seconds(self, work: Any) -> float:
        return work.num_draft_tokens * additive_pass_s(DRAFTER, work.num_seqs, 1) if work.num_seqs else 0.0


def full_throughput(job: Any, form: Any, batch: int, alpha: float, k: int) -> float:
    """Output tokens per second of the steps in which all `batch` requests decode; outputs are long."""
    each = 30_000 // batch + 400
    loop = job(
        num_requests=batch, prompt=1, output=each, alpha=alpha, k=k, cost=Priced(form), drafter=Drafts(),
        max_num_seqs=batch, seed=3,
    )  # fmt: skip
    record = loop.run(users=batch)
    full = record.steps.num_emitting == batch
    return float(record.steps.emitted_tokens[full].sum() / (record.steps.duration_ns[full].sum() * 1e-9))


@pytest.mark.parametrize(("form", "closed_form"), FORMS, ids=["overlapping", "additive"])
@pytest.mark.parametrize(("alpha", "k"), [(0.7, 4), (0.6, 3)])
def test_equal_batch_break_even_is_the_closed_form_within_one(job, form, closed_form, alpha, k):
    """From a scan over whole batches, and from simulations of a closed loop around it.

    The mean tokens per step of 30,000 tokens are good to 0.6 % (one standard error): 0.2 to 0.4 of a batch here.
    """
    omega = expected_tokens(alpha, k)
    expected = closed_form(TARGET, DRAFTER, omega, k).value
    assert 15 < expected < 40

    def gain(batch: int) -> float:
        plain, verify = form(TARGET, batch, 1), form(TARGET, batch, k + 1)
        return math.log(omega * plain / (verify + k * additive_pass_s(DRAFTER, batch, 1)))

    batches = list(range(1, 101))
    (scanned,) = crossings(batches, [gain(batch) for batch in batches])
    assert scanned.bracket == (math.floor(expected), math.floor(expected) + 1)
    near = [math.floor(expected) + step for step in (-4, -2, -1, 0, 1, 2, 4)]
    measured = [math.log(full_throughput(job, form, b, alpha, k) / full_throughput(job, form, b, 0.0, 0)) for b in near]
    (simulated,) = crossings(near, np.poly1d(np.polyfit(near, measured, 1))(near).tolist())
    assert abs(simulated.value - expected) <= 1.0


def linear(**sections: Any) -> LoadedScenario:
    """Additive costs: a pass takes `base_ms` and `per_token_us` for each token; four drafts take D = 1 ms per step."""
    scenario: dict[str, Any] = {
        "name": "fluid",
        "hardware": "h100-sxm",
        "model": "llama-3.1-8b",
        "cost_model": {"kind": "linear", "base_ms": 5, "per_token_us": 20, "draft": {"base_ms": 0.25}},
        "engine": {"max_num_seqs": 2048, "max_num_batched_tokens": 16384, "num_gpu_blocks_override": 200_000},
        "arms": {
            "plain": {},
            "k4": {
                "speculative_config": {"method": "eagle3", "num_speculative_tokens": 4},
                "acceptance": {"kind": "iid", "rate": 0.7},
            },
        },
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": 8},
            "prompt_tokens": {"kind": "fixed", "value": 1},
            "output_tokens": {"kind": "fixed", "value": 200},
            "num_requests": 1500,
        },
    }
    return load_mapping(scenario | sections)


def found_along(axis: str, loaded: LoadedScenario, limits: tuple[float, float], out: Path, **settings: Any) -> Any:
    """The crossings of one objective, found as on the command line."""
    how = Search(Work(out, partial(local_executor, 1)), {"objectives": ["mean_tpot_ms"]} | settings, 3)
    (objective,) = search(loaded, AXES[axis], limits, how).document["arms"]["k4"].values()
    return objective


def test_equal_concurrency_break_even_is_the_closed_form(tmp_path: Path) -> None:
    """Per-token costs ten times those of the fluid case put it at batch 17.7."""
    cost = {"kind": "linear", "base_ms": 5, "per_token_us": 200, "draft": {"base_ms": 0.25}}
    workload = {
        "arrivals": {"kind": "closed", "max_concurrency": 8},
        "prompt_tokens": {"kind": "fixed", "value": 1},
        "output_tokens": {"kind": "fixed", "value": 600},
        "num_requests": 90,
    }
    found = found_along("concurrency", linear(cost_model=cost, workload=workload), (12, 26), tmp_path, tolerance=0.1)
    target, drafter = PassTimes(5e-3, token_s=200e-6), PassTimes(0.25e-3)
    expected = additive_break_even(target, drafter, expected_tokens(0.7, 4), 4).value
    (crossing,) = found["crossings"]
    assert crossing["direction"] == "gain_to_loss"
    assert abs(crossing["value"] - expected) <= 1.0


def fluid_break_even(prefill_tokens_per_s: float) -> FluidLoad:
    return FluidLoad(5e-3, 20e-6, 1e-3, expected_tokens(0.7, 4), 4, prefill_tokens_per_s)


def test_equal_rate_break_even_is_that_of_the_fluid_limit(tmp_path: Path) -> None:
    """5 % as in the mathematics: the limit has neither random arrivals nor ends of answers."""
    found = found_along("request_rate", linear(), (90, 115), tmp_path, max_points=5)
    expected = fluid_break_even(100.0)
    (crossing,) = found["crossings"]
    assert crossing["direction"] == "gain_to_loss"
    assert crossing["value"] * 200 == pytest.approx(expected.break_even().value, rel=0.05)
    assert crossing["baseline_mean_running"] == pytest.approx(expected.break_even_batch(), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [121, 483])
def test_prefill_moves_the_break_even_load_but_not_the_batch(tmp_path: Path, prompt: int) -> None:
    """Prompts of 121 and 483 tokens make about 10,000 and 25,000 prefill tokens/s at the break-even."""
    workload = {
        "arrivals": {"kind": "poisson", "request_rate": 80},
        "prompt_tokens": {"kind": "fixed", "value": prompt},
        "output_tokens": {"kind": "fixed", "value": 200},
        "num_requests": 6000,
    }
    low, high = (60, 105) if prompt == 121 else (40, 65)
    found = found_along("request_rate", linear(workload=workload), (low, high), tmp_path)
    (crossing,) = found["crossings"]
    expected = fluid_break_even(prompt * crossing["value"])
    assert crossing["value"] * 200 == pytest.approx(expected.break_even().value, rel=0.05)
    assert crossing["baseline_mean_running"] == pytest.approx(expected.break_even_batch(), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("graphs", ["none", "pad"])
def test_all_crossings_of_experts_under_load_are_found(tmp_path: Path, graphs: str) -> None:
    """A mixture of experts: a batch that wakes further experts loses, later it gains, and tile sizes add a pocket.

    The closed form (decode steps alone) crosses four times; the simulated closed loop has to do so in the same order
    and near the same places: within a fifth, prefill and the ends of answers being the difference.
    """
    loaded = linear(
        model="gpt-oss-20b",
        cost_model={"kind": "roofline", "graphs": graphs},
        engine={"max_num_seqs": 1024},
        arms={
            "plain": {},
            "k4": {
                "speculative_config": {"method": "eagle3", "num_speculative_tokens": 4},
                "acceptance": {"kind": "iid", "rate": 0.6},
            },
        },
        workload={
            "arrivals": {"kind": "closed", "max_concurrency": 8},
            "prompt_tokens": {"kind": "fixed", "value": 16},
            "output_tokens": {"kind": "fixed", "value": 400},
        },
    )
    how = Search(Work(tmp_path, partial(local_executor, None)), {"objectives": ["output_throughput"]}, 3)
    answer = search(loaded, AXES["concurrency"], (1, 256), how)
    closed = answer.document["analytic"]["k4"]["crossings"]
    found = answer.document["arms"]["k4"]["output_throughput"]["crossings"]
    assert [each["direction"] for each in found] == ["loss_to_gain", "gain_to_loss"] * 2
    assert [each["direction"] for each in closed] == ["loss_to_gain", "gain_to_loss"] * 2
    for simulated, formula in zip(found[1:], closed[1:], strict=True):
        assert simulated["value"] == pytest.approx(formula["value"], rel=0.2)
    assert 2 <= found[0]["value"] <= 6  # whole users: 3 and 4 are a third apart
    for before, after in itertools.pairwise(found):
        assert before["bracket"][1] <= after["bracket"][0] or before["value"] < after["value"]
