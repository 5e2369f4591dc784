"""What drafting costs, method by method."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from sim.cost.base import NO_ATTENTION, NO_COST, AttentionLoad, BoundCost, ForwardPass, HostOverhead, PassPrice
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Naive
from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model
from sim.models.draft_heads import eagle_head, first_layers
from sim.proposers.retrieval import Retrieval
from sim.proposers.suffix import SuffixDecoding
from sim.speculation.base import SPECULATION, DraftWork, SpeculationMethod
from sim.speculation.dflash import BlockDrafter, DFlash
from sim.speculation.draft_model import DraftModel
from sim.speculation.drafters import AutoregressiveDrafter, ParallelDrafter, mean_pass
from sim.speculation.eagle import Eagle
from sim.speculation.layerskip import EarlyExitDrafter, LayerSkip, without_drafted
from sim.speculation.lookahead import Lookahead, NgramPool
from sim.speculation.mtp import Mtp
from sim.speculation.ngram import Ngram, NgramDrafter
from sim.speculation.plain import NoDrafter, Plain
from sim.speculation.rest import Rest
from sim.speculation.suffix import Suffix
from sim.speculation.token_lookup import LookupPerRequest

HERE = Path()
LAUNCH_S = 0.001


@dataclass
class Spy:
    """A cost that remembers what it was asked to price: 1 us per token, 2 us per logit row, 1 ns per KV token."""

    passes: list[ForwardPass] = field(default_factory=list)

    def price(self, forward: ForwardPass) -> PassPrice:
        self.passes.append(forward)
        kv = forward.decode.kv_tokens_read + forward.extend.kv_tokens_read
        seconds = 1e-6 * forward.num_tokens + 2e-6 * forward.num_logit_rows + 1e-9 * kv
        return PassPrice(seconds, seconds, 0.0, 0.0, 0.0, 0.0, True)


def drafter(launch_s: float = LAUNCH_S) -> tuple[AutoregressiveDrafter, Spy]:
    spy = Spy()
    return AutoregressiveDrafter(BoundCost(spy, spy, HostOverhead(0.0, 0.0), launch_s, "test", 0.0)), spy


def decode_work(batch: int, context: int, k: int) -> DraftWork:
    return DraftWork(verify_pass(batch, context, k), batch, batch * (context + 1), k)


def test_first_pass_takes_in_all_tokens_of_the_target_prompts_included() -> None:
    auto, spy = drafter()
    mixed = join_passes(verify_pass(4, 100, 3), prefill_pass(512))
    auto.draft_seconds(DraftWork(mixed, 5, 4 * 101 + 512, 3))
    first, mean = spy.passes
    assert first.num_tokens == 4 * 4 + 512
    assert (first.num_logit_rows, first.num_draft_tokens) == (5, 0)
    assert (mean.num_seqs, mean.num_tokens, mean.num_logit_rows) == (5, 5, 5)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_sequential_passes(k: int) -> None:
    auto, _ = drafter(0.0)
    batch, context = 8, 1000
    kv = batch * (context + 1)
    first = 1e-6 * batch * (1 + k) + 2e-6 * batch + 1e-9 * batch * (context + 1 + k)
    later = (k - 1) * (3e-6 * batch + 1e-9 * (kv + batch * k // 2 + batch))
    assert auto.draft_seconds(decode_work(batch, context, k)) == pytest.approx(first + later)
    auto, _ = drafter()  # launches run ahead: a pass takes the longer of them and its kernels
    longer = max(first, LAUNCH_S) + (k - 1) * max(later / max(1, k - 1), LAUNCH_S)
    assert auto.draft_seconds(decode_work(batch, context, k)) == pytest.approx(longer)


def test_k_0_still_keeps_the_drafters_kv_in_step() -> None:
    auto, spy = drafter()
    assert auto.draft_seconds(DraftWork(plain_pass(8, 100), 8, 808, 0)) == LAUNCH_S
    assert [p.num_logit_rows for p in spy.passes] == [0]


def test_an_empty_step_costs_nothing() -> None:
    auto, _ = drafter()
    nothing = DraftWork(plain_pass(0, 0), 0, 0, 3)
    assert auto.draft_seconds(nothing) == NoDrafter().draft_seconds(nothing) == 0.0
    assert NgramDrafter(1e-5, 1e-9).draft_seconds(nothing) == 0.0


def test_ngram_is_a_linear_search_on_the_cpu() -> None:
    search = NgramDrafter(1e-5, 4e-9)
    assert search.draft_seconds(decode_work(10, 999, 3)) == pytest.approx(1e-5 + 4e-9 * 10_000)
    assert search.draft_seconds(decode_work(10, 999, 0)) == 0.0


@pytest.mark.parametrize(
    ("method", "layers", "lookahead"),
    [
        (Plain(), None, 0),
        (Eagle(method="eagle", num_speculative_tokens=3), 1, 3),
        (Eagle(method="eagle3", num_speculative_tokens=7), 1, 7),
        (DraftModel(model="llama-3.2-1b", num_speculative_tokens=4), 16, 4),
        (Ngram(num_speculative_tokens=5), None, 0),
    ],
    ids=lambda value: getattr(value, "method", None),
)
def test_network_and_look_ahead_of_each_method(method: SpeculationMethod, layers: int | None, lookahead: int) -> None:
    model = method.drafter_model(find_model("llama-3.1-8b", HERE), HERE)
    assert (model.layers if model else None) == layers
    assert method.lookahead_tokens == lookahead


def test_mtp_drafts_with_a_layer_of_its_target() -> None:
    target = find_model("deepseek-v3", HERE)
    model = Mtp(method="mtp", num_speculative_tokens=1).drafter_model(target, HERE)
    assert (model.layers, model.experts, model.kv_lora_rank) == (1, target.experts, target.kv_lora_rank)


def test_lookups_per_request_grow_with_the_batch_only() -> None:
    search = LookupPerRequest(1e-5, 2e-5)
    assert search.draft_seconds(decode_work(10, 999, 3)) == pytest.approx(1e-5 + 10 * 2e-5)
    assert search.draft_seconds(decode_work(10, 99, 8)) == search.draft_seconds(decode_work(10, 9999, 1))
    assert search.draft_seconds(decode_work(10, 999, 0)) == 0.0


@pytest.mark.parametrize(
    ("written", "lookup"),
    [({}, (5, 5)), ({"prompt_lookup_min": 3}, (3, 3)), ({"prompt_lookup_max": 4}, (4, 4))],
)
def test_lookup_lengths_default_to_one_another_and_to_5_as_in_vllm(written: dict[str, int], lookup: tuple) -> None:
    rule = Ngram(num_speculative_tokens=3, **written).proposer
    assert (rule.prompt_lookup_min, rule.prompt_lookup_max) == lookup


def test_a_lookup_from_above_to_below_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompt_lookup_min \(4\) is above prompt_lookup_max \(2\)"):
        Ngram(num_speculative_tokens=3, prompt_lookup_min=4, prompt_lookup_max=2)


def test_suffix_decoding_drafts_up_to_its_depth_unless_told() -> None:
    assert Suffix().num_speculative_tokens == 24
    assert Suffix(suffix_decoding_max_tree_depth=12).max_draft_tokens == 12
    assert Suffix(suffix_decoding_max_tree_depth=12, num_speculative_tokens=3).max_draft_tokens == 3


def test_methods_that_look_drafts_up_bring_their_rule_and_say_what_the_host_holds() -> None:
    suffix, rest = Suffix(num_speculative_tokens=8), Rest(num_speculative_tokens=8, datastore="store.jsonl")
    assert suffix.proposer == SuffixDecoding(24, 10_000, 1.0, 0.1)
    assert suffix.host_memory_bytes(500) == pytest.approx(10_000 * 500 * 228)
    assert rest.located(Path("/data")).proposer == Retrieval(16, 10, Path("/data/store.jsonl"))
    assert rest.host_memory_bytes(500) == 12e9
    assert Ngram(num_speculative_tokens=3).host_memory_bytes(500) == 0.0
    assert Eagle(method="eagle", num_speculative_tokens=3).proposer is None


@pytest.mark.parametrize(
    ("written", "new_slots"),
    [
        ({"method": "eagle3", "num_speculative_tokens": 8}, 0),
        ({"method": "eagle3", "num_speculative_tokens": 8, "parallel_drafting": True}, 7),
        ({"method": "mtp", "num_speculative_tokens": 8}, 0),
        ({"method": "draft_model", "model": "llama-3.2-1b", "num_speculative_tokens": 8}, 1),
        ({"method": "draft_model", "model": "llama-3.2-1b", "num_speculative_tokens": 8, "parallel_drafting": True}, 8),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_the_first_pass_has_vllms_new_slots_per_request(written: dict[str, object], new_slots: int) -> None:
    """`SpeculativeConfig.max_num_new_slots_for_drafting`, tests of vllm-ascend: 0, 7, 0, 1 and 8 for K = 8."""
    spy = Spy()
    cost = BoundCost(spy, spy, HostOverhead(0.0, 0.0), 0.0, "test", 0.0)
    method = TypeAdapter(Annotated[SpeculationMethod, SPECULATION]).validate_python(written)
    work = DraftWork(join_passes(verify_pass(4, 100, 8), prefill_pass(512)), 5, 4 * 101 + 512, 8)
    method.bind(None, cost).draft_seconds(work)  # type: ignore[arg-type]
    assert spy.passes[0].num_tokens == 4 * 9 + 512 + 5 * new_slots
    assert len(spy.passes) == (2 if method.num_draft_passes(8) == 8 else 1)


def test_one_parallel_pass_holds_the_masks_and_drafts_every_token() -> None:
    spy = Spy()
    pard = ParallelDrafter(BoundCost(spy, spy, HostOverhead(0.0, 0.0), 0.0, "test", 0.0), new_slots=1)
    pard.draft_seconds(decode_work(batch=2, context=100, k=3))
    (only,) = spy.passes
    assert only == ForwardPass(2, 2 * (4 + 3), 2 * 3, 0, NO_ATTENTION, only.extend)
    # each sequence: 4 verified tokens over 100, then 3 more over 101 known ones
    assert only.extend == AttentionLoad(2, 14, 2 * (104 + 3), 2 * (4 * 100 + 10 + 3 * 101 + 6))


def test_what_a_drafter_takes_in_is_priced_once_with_its_first_pass() -> None:
    draft, intake = Spy(), Spy()
    cost = BoundCost(draft, draft, HostOverhead(0.0, 0.0), 0.0, "test", 0.0, intake=intake)
    work = decode_work(8, 1000, 3)
    with_intake = AutoregressiveDrafter(cost).draft_seconds(work)
    assert [(taken.num_tokens, taken.num_logit_rows) for taken in intake.passes] == [(32, 0)]
    without = AutoregressiveDrafter(replace(cost, intake=NO_COST)).draft_seconds(work)
    assert with_intake - without == pytest.approx(32e-6)


def test_eagle3_projects_its_three_states_once_per_step_on_the_gpu() -> None:
    """A pass of one token per request does not read the 100 MB of `fc` again: 30 us on an H100."""
    target, memory = find_model("llama-3.1-8b", HERE), MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    head = eagle_head(target, "eagle3")
    deployment = Deployment(target, head, find_gpu("h100-sxm"), 1, 1, "bf16", "bf16", 16, 1000, memory, "bf16")
    cost = Naive().bind(deployment)
    one = ForwardPass(0, 1, 0, 0, NO_ATTENTION, NO_ATTENTION)
    fc_s = 2 * 4096 * 3 * 4096 / find_gpu("h100-sxm").memory_bandwidth
    assert cost.intake.price(one).seconds == pytest.approx(fc_s, rel=0.01)
    layer = 2 * (head.num_parameters - 3 * 4096 * 4096 - 32_000 * 4096) / find_gpu("h100-sxm").memory_bandwidth
    assert cost.draft.price(plain_pass(1, 100)).linear == pytest.approx(layer, rel=0.01)


def test_dflash_drafts_in_one_block_that_sees_itself() -> None:
    draft, intake = Spy(), Spy()
    cost = BoundCost(draft, draft, HostOverhead(0.0, 0.0), LAUNCH_S, "test", 0.0, intake=intake)
    work = decode_work(batch=3, context=100, k=15)
    BlockDrafter(cost).draft_seconds(work)
    (block,) = draft.passes
    assert [(taken.num_tokens, taken.num_logit_rows) for taken in intake.passes] == [(3 * 16, 0)]
    assert (block.num_tokens, block.num_logit_rows) == (3 * 16, 3 * 15)
    assert block.extend == AttentionLoad(3, 48, 3 * (101 + 16), 3 * 16 * (101 + 16))
    assert BlockDrafter(cost).draft_seconds(DraftWork(plain_pass(8, 100), 8, 808, 0)) == LAUNCH_S


def test_dflash_reserves_a_slot_more_than_it_drafts() -> None:
    assert DFlash(num_speculative_tokens=15).lookahead_tokens == 16


def test_lookahead_widens_the_target_pass_and_accepts_an_n_gram() -> None:
    method = Lookahead(max_window_size=7, max_ngram_size=5, max_verification_set_size=7)
    assert 1 + method.max_draft_tokens == 4 * 14  # (N - 1)(W + G), arXiv 2402.02057
    assert (method.max_accepted_tokens, method.lookahead_tokens) == (4, 0)
    assert NgramPool(2e-6).draft_seconds(decode_work(10, 100, 55)) == pytest.approx(2e-5)
    with pytest.raises(ValidationError, match="is 839; at most 255 extra tokens"):
        Lookahead(max_window_size=60, max_ngram_size=8, max_verification_set_size=60)


@pytest.mark.parametrize("batch", [1, 16, 200])
@pytest.mark.parametrize("k", [1, 4])
def test_layerskip_verifies_with_the_layers_that_did_not_draft(batch: int, k: int) -> None:
    """On the ideal GPU: the first layers for one token per request, the others and the LM head for all."""
    target, memory = find_model("llama-3.1-8b", HERE), MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    parts = [first_layers(target, 8), first_layers(target, 24)]
    bound = [
        Naive().bind(Deployment(target, part, find_gpu("h100-sxm"), 1, 1, "bf16", "bf16", 16, 1000, memory, "bf16"))
        for part in parts
    ]
    method = LayerSkip(exit_layer=8, num_speculative_tokens=k)
    verify, context = verify_pass(batch, 1000, k), 1000
    rest = bound[1].draft.price(verify)
    one_each = bound[0].draft.price(plain_pass(batch, context + k)._replace(num_logit_rows=0))
    found = method.verification_cost(bound[0]).target.price(verify)
    assert found.linear == pytest.approx(rest.linear + one_each.linear, rel=1e-9)
    assert found.lm_head == pytest.approx(rest.lm_head, rel=1e-9)
    assert found.seconds == pytest.approx(rest.seconds + one_each.seconds, rel=1e-3)  # query-key pairs
    assert found.seconds < bound[0].target.price(verify).seconds


def test_layerskip_leaves_prompts_alone_and_drafts_with_the_first_layers() -> None:
    mixed = join_passes(verify_pass(4, 100, 3), prefill_pass(512))
    left = without_drafted(mixed)
    assert (left.num_tokens, left.num_logit_rows) == (4 + 512, 0)
    assert left.extend.kv_tokens_read == mixed.extend.kv_tokens_read
    spy = Spy()
    drafter = EarlyExitDrafter(BoundCost(spy, spy, HostOverhead(0.0, 0.0), 0.0, "test", 0.0))
    assert drafter.draft_seconds(DraftWork(mixed, 5, 916, 0)) == 0.0
    once = spy.price(mean_pass(DraftWork(mixed, 5, 916, 3))).seconds
    assert drafter.draft_seconds(DraftWork(mixed, 5, 916, 3)) == pytest.approx(3 * once)


def test_eagle_has_no_parallel_heads() -> None:
    with pytest.raises(ValidationError, match="parallel_drafting needs method eagle3"):
        Eagle(method="eagle", num_speculative_tokens=3, parallel_drafting=True)
