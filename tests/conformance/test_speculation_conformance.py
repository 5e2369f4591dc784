"""Every registered speculation method, present and future, by the examples in its schema."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from sim.acceptance.base import MAX_DRAFT_TOKENS
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.speculation.base import SPECULATION, Drafter, DraftWork, SpeculationMethod

ADAPTER = TypeAdapter(Annotated[SpeculationMethod, SPECULATION])
EXAMPLES = [
    pytest.param(example, id=f"{spec.__name__}-{index}")
    for spec in dict.fromkeys(SPECULATION.members().values())
    for index, example in enumerate(spec.model_config.get("json_schema_extra", {}).get("examples", [None]))
]
every_method = pytest.mark.parametrize("written", EXAMPLES)
#: A target that every method can draft for: it has multi-token-prediction layers.
TARGET = "deepseek-v3"


def read(written: object) -> SpeculationMethod:
    assert written is not None, "every method declares examples in model_config['json_schema_extra']"
    return ADAPTER.validate_python(written)


def bound(method: SpeculationMethod) -> tuple[Drafter, Model | None]:
    target, memory = find_model(TARGET, Path()), MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    drafter = method.drafter_model(target, Path())
    ways = method.drafter_tensor_parallel_size(8)
    formats = ("fp8", "bf16", 16, 1000, memory, "auto")
    deployment = Deployment(target, drafter, find_gpu("h200-sxm"), 8, ways, *formats)
    return method.bind(deployment, Roofline().bind(deployment)), drafter


@every_method
def test_reads_back_from_its_own_dump(written) -> None:
    method = read(written)
    assert ADAPTER.validate_python(method.model_dump(mode="json")) == method
    assert type(method).__doc__


@every_method
def test_k_and_look_ahead_stay_within_their_limits(written) -> None:
    method = read(written)
    assert 0 <= method.lookahead_tokens <= method.max_draft_tokens <= MAX_DRAFT_TOKENS
    table = method.draft_length.table(method.max_draft_tokens)
    chosen = [table.at(num_seqs) for num_seqs in range(1, 2000)]
    assert min(chosen) >= 0
    assert max(chosen) == method.max_draft_tokens
    assert method.drafter_tensor_parallel_size(8) in (1, 8)


@every_method
def test_slots_are_reserved_for_drafters_with_kv_of_their_own(written) -> None:
    method = read(written)
    _, drafter = bound(method)
    assert (drafter is None) == (method.lookahead_tokens == 0)
    assert drafter is None or drafter.num_parameters > 0


@every_method
def test_drafting_takes_finite_time_that_grows_with_k(written) -> None:
    drafter, _ = bound(read(written))
    mixed = join_passes(verify_pass(8, 400, 3), prefill_pass(512))
    seconds = [drafter.draft_seconds(DraftWork(mixed, 9, 9 * 400, k)) for k in range(8)]
    assert all(math.isfinite(value) and value >= 0 for value in seconds)
    assert all(a <= b for a, b in pairwise(seconds))


@every_method
def test_an_empty_step_and_a_method_that_never_drafts_cost_nothing(written) -> None:
    method = read(written)
    drafter, network = bound(method)
    assert drafter.draft_seconds(DraftWork(plain_pass(0, 0), 0, 0, method.max_draft_tokens)) == 0.0
    if network is None:
        assert drafter.draft_seconds(DraftWork(plain_pass(8, 400), 8, 3200, 0)) == 0.0
