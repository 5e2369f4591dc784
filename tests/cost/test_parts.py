"""Op groups on their own: experts, windows, profiles as data."""

from pathlib import Path

import pytest

from sim.cost.kernel_choice import marlin_experts
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Naive, Roofline
from sim.cost.smooth import smooth_max
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile, find_profile, profile_ids
from sim.models.catalogue import find_model
from sim.theory import distinct_experts


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "expected"),
    [(8, 2, 1, 2), (8, 2, 4, 5.47), (8, 2, 16, 7.92), (128, 8, 4, 29.12), (128, 8, 64, 125.94), (256, 8, 6, 44.4)],
)
def test_distinct_experts_golden(experts, top_k, tokens, expected):
    assert distinct_experts(tokens, experts, top_k) == pytest.approx(expected, abs=0.05)


def test_smooth_maximum():
    assert smooth_max(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert smooth_max(3.0, 4.0, None) == 4.0
    assert smooth_max(0.0, 4.0, 2.0) == 4.0
    assert smooth_max(0.0, 0.0, 2.0) == 0.0
    assert smooth_max(1e-300, 1e-300, 3.0) == pytest.approx(2 ** (1 / 3) * 1e-300)


def test_ideal_experts_read_distinct_weights_and_compute_active_ones(deploy):
    model, gpu = find_model("mixtral-8x7b", Path()), find_gpu("h100-sxm")
    price = Naive().bind(deploy(model, gpu)).target.price
    one, four = price(plain_pass(1, 1)).linear, price(plain_pass(4, 1)).linear
    expert_bytes = 2 * 3 * model.hidden * model.moe_ffn * model.layers
    extra = (distinct_experts(4, 8, 2) - 2) * expert_bytes / gpu.memory_bandwidth
    assert four - one == pytest.approx(extra, rel=1e-2)


def test_window_layers_stop_reading_more_kv(deploy):
    model = find_model("gemma-3-4b", Path())
    price = Naive().bind(deploy(model, "h100-sxm")).target.price
    growth = (price(plain_pass(4, 20_000)).attention - price(plain_pass(4, 10_000)).attention) * 3.35e12
    per_layer = 2 * model.kv_heads * model.head_dim * 2
    assert growth == pytest.approx(4 * 10_000 * per_layer * model.full_attention_layers, rel=1e-9)
    short = price(plain_pass(4, 500)).attention * 3.35e12
    assert short == pytest.approx(4 * 501 * per_layer * model.layers, rel=1e-9)


def test_latent_attention_reads_the_latent_once_for_all_heads(deploy):
    model = find_model("deepseek-v3", Path())
    found = Naive().bind(deploy(model, "h200-sxm", tp=8)).target.price(plain_pass(16, 4095)).attention
    assert found == pytest.approx(16 * 4096 * 576 * 2 * model.layers / 4.8e12, rel=1e-9)


def test_constructors_of_passes():
    verify = verify_pass(3, 10, 2)
    assert verify[:4] == (3, 9, 9, 6)
    assert verify.decode == (0, 0, 0, 0)
    assert verify.extend == (3, 9, 39, 3 * (11 + 12 + 13))
    assert plain_pass(3, 10).decode == (3, 3, 33, 33)
    assert prefill_pass(5, cached=2, last_chunk=False)[:4] == (1, 5, 0, 0)
    assert prefill_pass(5, cached=2).extend == (1, 5, 7, 3 + 4 + 5 + 6 + 7)
    mixed = join_passes(verify, plain_pass(2, 7))
    assert mixed == (5, 11, 11, 6, (2, 2, 16, 16), verify.extend)


def test_every_profile_says_where_its_numbers_come_from():
    assert {"default", "ideal", "h100-sxm"} <= set(profile_ids())
    for profile in map(find_profile, profile_ids()):
        sections = (profile.extend_attention, profile.mla, profile.elementwise, profile.sampler)
        fits = [*profile.linear.values(), *profile.moe.values(), *profile.decode_attention.values(), *sections]
        fits += [fit for group in profile.collectives.values() for fit in group.values()]
        assert profile.source
        assert all(fit.source for fit in fits if fit)


def test_file_names_are_ids_and_fitted_gpus_are_in_the_catalogue():
    for name in profile_ids():
        profile = find_profile(name)
        assert profile.id == name
        if profile.measured_on:
            gpu = find_gpu(profile.measured_on.gpu)
            assert profile.is_measured_on(gpu)
            assert gpu.arch in profile.archs
            assert choose_profile(gpu).profile is profile


def test_changed_datasheet_figures_are_not_the_measured_gpu():
    gpu = find_gpu("h100-sxm").model_copy(update={"memory_bandwidth": 4.8e12})
    chosen = choose_profile(gpu)
    assert (chosen.profile.id, chosen.relative_error) == ("h100-sxm", 0.15)


def test_packed_attention_on_a_gpu_of_the_other_class(deploy):
    """Several new tokens get cheaper, nothing else changes, and the result says that this was not measured."""
    deployment = deploy("llama-3.1-8b", "a100-sxm-80gb")
    own, packed = Roofline().bind(deployment), Roofline(attention_kernel="packed").bind(deployment)
    verify = verify_pass(64, 4000, 3)
    assert packed.target.price(verify).attention < 0.6 * own.target.price(verify).attention
    assert packed.target.price(plain_pass(64, 4000)) == own.target.price(plain_pass(64, 4000))
    assert (own.relative_error, packed.relative_error) == (0.08, 0.15)
    assert set(packed.caveats) - set(own.caveats) == {"A100-SXM-80GB: packed attention kernels were not measured on it"}
    hopper = deploy("llama-3.1-8b", "h100-sxm")
    assert Roofline(attention_kernel="packed").bind(hopper).relative_error == Roofline().bind(hopper).relative_error


def test_logits_are_gathered_from_the_group(deploy):
    """All-gather of 16-bit logits, each GPU receiving all but its own share; nothing on one GPU."""
    alone, group = (Naive().bind(deploy("llama-3.1-8b", "h100-sxm", tp=tp)).target for tp in (1, 4))
    assert alone.price(plain_pass(8, 100)).collective == 0.0
    few, more = (group.price(plain_pass(8, 100)._replace(num_logit_rows=rows)).collective for rows in (8, 9))
    assert more - few == pytest.approx(2.0 * 128_256 * 0.75 / find_gpu("h100-sxm").link_bandwidth)


def test_marlin_experts_compute_prompts_more_slowly_and_decode_alike(deploy):
    """On Hopper, which was measured with Triton kernels; L40S has Marlin's already, dense models have no experts."""
    deployment = deploy("gpt-oss-120b", "h200-sxm", weights="mxfp4")
    own, marlin = Roofline().bind(deployment), Roofline(experts_kernel="marlin").bind(deployment)
    prompt, decode = prefill_pass(8000), plain_pass(32, 1000)
    assert 1.3 < marlin.target.price(prompt).linear / own.target.price(prompt).linear < 2.2
    assert marlin.target.price(decode).linear == pytest.approx(own.target.price(decode).linear, rel=0.1)
    assert set(marlin.caveats) - set(own.caveats) == {"H200-SXM: Marlin experts were not measured on it"}
    dense = deploy("llama-3.1-8b", "h200-sxm")
    assert Roofline(experts_kernel="marlin").bind(dense).caveats == Roofline().bind(dense).caveats
    there = choose_profile(find_gpu("l40s"))
    assert marlin_experts(there, find_gpu("l40s")) is there


def test_an_engine_that_replicates_the_lm_head_computes_all_logits_on_every_gpu(deploy):
    """The head of one GPU in a group of eight, and nothing to gather; on one GPU the same as anybody."""
    alone, group = (Roofline(engine="magicdec").bind(deploy("llama-3.1-8b", "a100-sxm-80gb", tp=tp)) for tp in (1, 8))
    forward = verify_pass(128, 4000, 2)
    assert group.target.price(forward).lm_head == alone.target.price(forward).lm_head
    shared = Roofline(engine="none").bind(deploy("llama-3.1-8b", "a100-sxm-80gb", tp=8)).target.price(forward)
    assert group.target.price(forward).lm_head > 4 * shared.lm_head
    assert group.target.price(forward).collective < shared.collective


def test_expanded_drafts_are_sequences_of_their_own(deploy):
    """Batch expansion: a pass that verifies K drafts of B sequences costs the attention of B (K + 1) plain ones."""
    expanding = Roofline(engine="vllm-0.6").bind(deploy("llama-3.1-8b", "h100-sxm")).target
    verified, plain = expanding.price(verify_pass(8, 1000, 3)), expanding.price(plain_pass(32, 1000))
    # K drafts see one, two, three tokens more than the first: 1.5 of 1,001 on average.
    assert verified.attention == pytest.approx(plain.attention, rel=2e-3)
    together = Roofline(engine="vllm-0.10").bind(deploy("llama-3.1-8b", "h100-sxm")).target
    assert verified.attention > 2 * together.price(verify_pass(8, 1000, 3)).attention
    assert expanding.price(plain_pass(8, 1000)).attention == together.price(plain_pass(8, 1000)).attention


def test_a_draft_costs_what_the_engine_adds_for_each(deploy):
    """Engine vllm-0.6: 3.6 ms a verifying step, 6.1 us a row, 112 us a draft."""
    price = Roofline(engine="vllm-0.6").bind(deploy("llama-3.1-8b", "h100-sxm")).target.price
    few, many = price(verify_pass(8, 1000, 1)), price(verify_pass(8, 1000, 5))
    kernels = Roofline(engine="none").bind(deploy("llama-3.1-8b", "h100-sxm")).target.price
    added = [p.fixed - kernels(verify_pass(8, 1000, k)).fixed for p, k in ((few, 1), (many, 5))]
    assert added == pytest.approx([3.6e-3 + 16 * 6.1e-6 + 8 * 112e-6, 3.6e-3 + 48 * 6.1e-6 + 40 * 112e-6])


def test_prefill_beside_verification_is_not_expanded(deploy):
    """V0 never mixes them; where a scenario does, only kernels can tell what a chunk costs."""
    target = Roofline(engine="vllm-0.6").bind(deploy("llama-3.1-8b", "h100-sxm")).target
    mixed = join_passes(verify_pass(8, 1000, 3), prefill_pass(512))
    other = Roofline(engine="vllm-0.10").bind(deploy("llama-3.1-8b", "h100-sxm")).target
    assert target.price(mixed).attention == other.price(mixed).attention
