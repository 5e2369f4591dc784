"""What drafting costs, method by method."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sim.cost.base import BoundCost, ForwardPass, HostOverhead, PassPrice
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.models.catalogue import find_model
from sim.proposers.retrieval import Retrieval
from sim.proposers.suffix import SuffixDecoding
from sim.speculation.base import DraftWork, SpeculationMethod
from sim.speculation.chain import AutoregressiveDrafter
from sim.speculation.draft_model import DraftModel
from sim.speculation.eagle import Eagle
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
