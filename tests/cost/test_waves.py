"""Whole waves of thread blocks: what an incomplete last wave costs, and where it is counted."""

from itertools import pairwise

import pytest

from sim.cost.passes import plain_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.cost.waves import Waves


def test_blocks_that_all_run_at_once_lose_nothing():
    waves = Waves(resident=216, saturating=82)
    assert [waves.slowdown(blocks) for blocks in (1, 128, 216, 432, 2160)] == [1.0] * 5


def test_a_last_wave_takes_as_long_as_the_blocks_that_fill_the_bandwidth():
    waves = Waves(resident=216, saturating=82)
    assert waves.slowdown(217) == pytest.approx((216 + 82) / 217)
    assert waves.slowdown(256) == pytest.approx((216 + 82) / 256)
    assert waves.slowdown(298) == pytest.approx(1.0)
    assert waves.slowdown(512) == pytest.approx((432 + 82) / 512)


def test_time_never_falls_with_the_blocks_and_the_loss_dies_out():
    waves = Waves(resident=216, saturating=82)
    times = [blocks * waves.slowdown(blocks) for blocks in range(1, 4000)]
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in pairwise(times))
    assert max(waves.slowdown(blocks) for blocks in range(2160, 4000)) < 1.04


def attention(deploy, gpu: str, waves: str, forward, model: str = "llama-2-7b", tp: int = 8, kernel: str = "packed"):
    cost = Roofline(engine="none", attention_kernel=kernel, attention_waves=waves)
    return cost.bind(deploy(model, gpu, tp=tp)).target.price(forward).attention


@pytest.mark.parametrize("forward", [plain_pass(64, 16_000), verify_pass(64, 16_000, 2)])
def test_64_sequences_of_four_heads_are_more_than_one_wave_on_a100(deploy, forward):
    """256 blocks over 216 places."""
    even, counted = (attention(deploy, "a100-sxm-80gb", waves, forward) for waves in ("none", "count"))
    assert counted / even == pytest.approx((216 + 82) / 256, abs=0.01)


@pytest.mark.parametrize("batch", [32, 48])
def test_one_wave_is_as_before(deploy, batch):
    forward = plain_pass(batch, 16_000)
    even, counted = (attention(deploy, "a100-sxm-80gb", waves, forward) for waves in ("none", "count"))
    assert counted == even


def test_serial_blocks_and_gpus_without_waves_are_as_before(deploy):
    """FlashAttention-2 with several new tokens counts waves of its own; Hopper's kernels spread any batch."""
    verify = verify_pass(64, 16_000, 2)
    for gpu, kernel, forward in (("a100-sxm-80gb", "auto", verify), ("h100-sxm", "auto", plain_pass(64, 16_000))):
        even, counted = (attention(deploy, gpu, waves, forward, kernel=kernel) for waves in ("none", "count"))
        assert counted == even
