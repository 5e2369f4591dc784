"""Every registered cost model, present and future, by the examples in its schema."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from sim.cost.base import COST_MODELS, NO_ATTENTION, OP_GROUPS, CostModel, ForwardPass, PassPrice
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.metrics.details import OP_COLUMNS
from sim.models.catalogue import find_model
from sim.models.draft_heads import eagle_head
from sim.models.model import Model

ADAPTER = TypeAdapter(Annotated[CostModel, COST_MODELS])
EXAMPLES = [
    pytest.param(example, id=f"{kind}-{index}")
    for kind, cls in COST_MODELS.members().items()
    for index, example in enumerate(cls.model_config.get("json_schema_extra", {}).get("examples", [None]))
]
every_kind = pytest.mark.parametrize("written", EXAMPLES)
MIXED = join_passes(verify_pass(8, 300, 3), prefill_pass(700, cached=100))
PASSES = (plain_pass(1, 0), plain_pass(64, 2000), verify_pass(32, 500, 7), prefill_pass(4096), MIXED)


def read(written: object) -> CostModel:
    assert written is not None, "every kind declares examples in model_config['json_schema_extra']"
    return ADAPTER.validate_python(written).located(Path(__file__).parent / "data")


def deployment(drafter: Model | None = None, gpu: str = "h100-sxm", tp: int = 1) -> Deployment:
    target, memory = find_model("llama-3.1-8b", Path()), MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    return Deployment(target, drafter, find_gpu(gpu), tp, tp, "bf16", "bf16", 16, 1000, memory)


@every_kind
def test_reads_back_from_its_own_dump(written) -> None:
    model = read(written)
    assert ADAPTER.validate_python(model.model_dump(mode="json")) == model
    assert hash(ADAPTER.validate_python(model.model_dump(mode="json"))) == hash(model)


@every_kind
@pytest.mark.parametrize(("gpu", "tp"), [("h100-sxm", 1), ("l40s", 2), ("mi300x", 8)])
def test_prices_are_finite_and_the_sum_of_their_groups(written, gpu: str, tp: int) -> None:
    bound = read(written).bind(deployment(gpu=gpu, tp=tp))
    for forward in PASSES:
        price = bound.target.price(forward)
        groups = [getattr(price, group) for group in OP_GROUPS]
        assert price.seconds > 0
        assert all(type(value) is float and math.isfinite(value) and value >= 0 for value in groups)
        assert price.seconds == pytest.approx(sum(groups), rel=1e-12)
        assert type(price.memory_bound) is bool
        assert bound.target.price(forward) == price


@every_kind
def test_an_empty_pass_is_free(written) -> None:
    bound = read(written).bind(deployment())
    assert bound.target.price(ForwardPass(0, 0, 0, 0, NO_ATTENTION, NO_ATTENTION)).seconds == 0.0


@every_kind
def test_more_work_never_takes_less_time(written) -> None:
    price = read(written).bind(deployment()).target.price
    for longer in (
        [plain_pass(batch, 500) for batch in (1, 2, 16, 64, 256, 1024)],
        [plain_pass(16, context) for context in (0, 100, 1000, 10_000, 100_000)],
        [verify_pass(16, 500, k) for k in range(17)],
        [prefill_pass(tokens) for tokens in (2, 64, 512, 4096, 8192)],
    ):
        assert all(price(a).seconds <= price(b).seconds for a, b in pairwise(longer))


@every_kind
def test_one_mixed_pass_is_not_dearer_than_two(written) -> None:
    price = read(written).bind(deployment()).target.price
    apart = price(verify_pass(8, 300, 3)).seconds + price(prefill_pass(700, cached=100)).seconds
    assert price(MIXED).seconds <= apart


@every_kind
def test_a_drafter_has_prices_of_its_own(written) -> None:
    head = eagle_head(find_model("llama-3.1-8b", Path()), "eagle3")
    bound = read(written).bind(deployment(head))
    assert 0 < bound.draft.price(plain_pass(8, 500)).seconds < bound.target.price(plain_pass(8, 500)).seconds
    assert bound.draft_launch_s >= 0


@every_kind
def test_says_what_it_rests_on(written) -> None:
    bound = read(written).bind(deployment())
    assert bound.profile
    assert 0 <= bound.relative_error < 1
    assert bound.host.seconds(0) >= 0
    assert bound.host.seconds(64) >= bound.host.seconds(1)


def test_op_groups_are_named_alike_on_every_floor() -> None:
    """`RunRecord.steps.op_seconds` is cut out of the prices by position."""
    assert PassPrice._fields == ("seconds", *OP_GROUPS, "memory_bound", "extrapolated")
    assert OP_COLUMNS == OP_GROUPS
