"""Every registered speculation method, present and future, by the examples in its schema."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS
from sim.cost.base import BoundCost
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.deployment import Deployment, MemoryBudget, plan_deployment
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.speculation.base import SPECULATION, Drafter, DraftWork, SpeculationMethod

ADAPTER = TypeAdapter(Annotated[SpeculationMethod, SPECULATION])
SPECS = list(dict.fromkeys(SPECULATION.members().values()))
WRITTEN = [
    (f"{spec.__name__}-{index}", example)
    for spec in SPECS
    for index, example in enumerate(spec.model_config.get("json_schema_extra", {}).get("examples", [None]))
]
every_method = pytest.mark.parametrize("written", [pytest.param(example, id=name) for name, example in WRITTEN])
every_drafting = pytest.mark.parametrize(
    "written", [pytest.param(example, id=name) for name, example in WRITTEN if example != {"method": "plain"}]
)
#: A target that every method can draft for: it has multi-token-prediction layers.
TARGET = "deepseek-v3"


def read(written: object) -> SpeculationMethod:
    assert written is not None, "every method declares examples in model_config['json_schema_extra']"
    return ADAPTER.validate_python(written)


def priced(method: SpeculationMethod) -> tuple[Drafter, BoundCost, BoundCost, Model | None]:
    """The bound drafter, the prices under the method and without it, and the drafter's network."""
    target, memory = find_model(TARGET, Path()), MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    drafter = method.drafter_model(target, Path())
    ways = method.drafter_tensor_parallel_size(8)
    dtype = "fp8" if method.shares_target else "auto"
    formats = ("fp8", "bf16", 16, 1000, memory, dtype)
    deployment = Deployment(target, drafter, find_gpu("h200-sxm"), 8, ways, *formats)
    plain = Roofline().bind(deployment)
    cost = method.verification_cost(plain)
    return method.bind(deployment, cost), cost, plain, drafter


def bound(method: SpeculationMethod) -> tuple[Drafter, Model | None]:
    drafter, _, _, network = priced(method)
    return drafter, network


@every_method
def test_reads_back_from_its_own_dump(written) -> None:
    method = read(written)
    assert ADAPTER.validate_python(method.model_dump(mode="json")) == method
    assert type(method).__doc__


@every_method
def test_k_and_look_ahead_stay_within_their_limits(written) -> None:
    method = read(written)
    assert method.lookahead_tokens >= 0
    assert method.max_accepted_tokens <= min(MAX_DRAFT_TOKENS, method.max_draft_tokens)
    assert method.max_draft_tokens <= 255, "drafts per step are recorded as bytes"
    if method.tree_shape is None:
        assert method.lookahead_tokens <= method.max_draft_tokens + 1
    table = method.draft_length.table(method.max_draft_tokens)
    chosen = [table.at(num_seqs) for num_seqs in range(1, 2000)]
    assert min(chosen) >= 0
    assert max(chosen) == method.max_draft_tokens
    assert method.drafter_tensor_parallel_size(8) in (1, 8)


@every_method
def test_slots_are_reserved_for_drafters_with_kv_of_their_own(written) -> None:
    method = read(written)
    _, network = bound(method)
    has_kv = network is not None and network.kv_bytes_per_token() > 0
    assert has_kv or method.lookahead_tokens == 0
    assert network is None or network.num_parameters > 0
    assert (network is not None) == (method.num_draft_passes(max(1, method.max_draft_tokens)) > 0)


@every_drafting
def test_a_drafter_takes_memory_of_its_own_unless_it_is_part_of_the_target(written) -> None:
    method, target = read(written), find_model(TARGET, Path())
    network = method.drafter_model(target, Path())
    deployment = plan_deployment(
        target, network, find_gpu("h200-sxm"), tensor_parallel_size=8, drafter_tensor_parallel_size=8,
        weight_dtype="auto", drafter_weight_dtype="auto", kv_cache_dtype="auto", block_size=16,
        gpu_memory_utilization=0.9, max_num_batched_tokens=8192, max_num_seqs=256, max_model_len=None,
        drafter_shares_target=method.shares_target,
    )  # fmt: skip
    memory, own = deployment.memory, network is not None and not method.shares_target
    assert (memory.drafter_weights > 0) == own
    own_kv = memory.kv_bytes_per_token - target.kv_bytes_per_token("auto", 8)
    assert own_kv == (network.kv_bytes_per_token("auto", 8) if network and own else 0)


@every_method
def test_drafting_takes_finite_time_that_grows_with_k(written) -> None:
    drafter, _ = bound(read(written))
    mixed = join_passes(verify_pass(8, 400, 3), prefill_pass(512))
    seconds = [drafter.draft_seconds(DraftWork(mixed, 9, 9 * 400, k)) for k in range(8)]
    assert all(math.isfinite(value) and value >= 0 for value in seconds)
    assert all(a <= b for a, b in pairwise(seconds))


@every_drafting
def test_drafting_and_verifying_take_longer_for_more_requests_and_longer_contexts(written) -> None:
    """A percent is allowed: kernels pick other tiles at other sizes."""
    method = read(written)
    drafter, cost, _, _ = priced(method)
    k = method.max_draft_tokens

    def seconds(batch: int, context: int) -> float:
        forward = verify_pass(batch, context, k)
        return cost.target.price(forward).seconds + drafter.draft_seconds(DraftWork(forward, batch, batch * context, k))

    for steps in (
        [seconds(batch, 1000) for batch in (1, 2, 5, 16, 64, 200)],
        [seconds(16, context) for context in (1, 100, 1000, 10_000, 60_000)],
    ):
        assert all(a <= 1.01 * b for a, b in pairwise(steps)), steps


@every_method
def test_an_empty_step_and_a_method_that_never_drafts_cost_nothing(written) -> None:
    method = read(written)
    drafter, network = bound(method)
    assert drafter.draft_seconds(DraftWork(plain_pass(0, 0), 0, 0, method.max_draft_tokens)) == 0.0
    if network is None or network.kv_bytes_per_token() == 0:
        assert drafter.draft_seconds(DraftWork(plain_pass(8, 400), 8, 3200, 0)) == 0.0


@every_method
def test_without_drafts_the_target_costs_what_it_costs_plain(written) -> None:
    _, cost, plain, _ = priced(read(written))
    for forward in (plain_pass(1, 500), plain_pass(64, 2000), prefill_pass(2048)):
        assert cost.target.price(forward) == plain.target.price(forward)


@every_drafting
@pytest.mark.parametrize("batch", [1, 16, 256])
def test_a_step_without_an_accepted_draft_is_slower_than_a_plain_one(written, batch) -> None:
    method = read(written)
    drafter, cost, plain, _ = priced(method)
    k = method.max_draft_tokens
    verify = verify_pass(batch, 1000, k)
    step = cost.target.price(verify).seconds + drafter.draft_seconds(DraftWork(verify, batch, batch * 1000, k))
    assert step > plain.target.price(plain_pass(batch, 1000)).seconds


@every_drafting
def test_no_step_exceeds_the_token_budget_and_every_request_ends(written) -> None:
    budget, depth = 128, read(written).max_accepted_tokens
    other_vocabulary = {"use_heterogeneous_vocab": True} if written["method"] == "draft_model" else {}
    scenario = load_mapping(
        {
            "hardware": "h200-sxm",
            "model": TARGET,
            "engine": {"tensor_parallel_size": 8, "max_model_len": 2048, "max_num_batched_tokens": budget,
                       "max_num_seqs": 16},
            "arms": {
                "plain": {},
                "it": {
                    "speculative_config": {**written, **other_vocabulary},
                    "acceptance": {"kind": "length", "tokens_per_step": 1.5, "num_speculative_tokens": depth},
                },
            },
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 12},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 30},
                "num_requests": 24,
            },
        }
    ).scenario  # fmt: skip
    method = scenario.arms["it"].speculative_config
    run = simulate(scenario, "it", 0, Path())
    assert int(run.steps.num_tokens.max()) <= budget
    assert run.requests.emitted_tokens.tolist() == [30] * 24
    assert int(run.steps.draft_tokens.max()) > 0
    assert int(run.accepted.max()) <= method.max_accepted_tokens


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.model_fields["method"].default != "plain"])
def test_the_documentation_knows_its_costs_and_sources(spec) -> None:
    facts = spec.facts
    assert facts is not None, "every method that drafts has `facts` for docs/methods.md"
    assert facts.drafting
    assert facts.cpu
    assert facts.engines
    assert facts.sources
    assert set(facts.acceptance_kinds) <= set(ACCEPTANCE.members())
    assert facts.acceptance_kinds
    assert all(figure.tokens_per_step >= 1 and figure.source for figure in facts.typical)
