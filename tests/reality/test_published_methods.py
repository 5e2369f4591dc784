"""Published speed-ups of methods whose cost is derived, never fitted, against the closed form at their lengths.

The tolerance is two sigma of the model's own band (kernels and engine). Papers time whole requests in batches of equal
ones; the closed form is steady decoding at the context they pass half-way.
"""

import math
from pathlib import Path

import pytest

from sim.experiment.analytic import speedup_and_band
from sim.scenario.build import set_up
from sim.scenario.load import load_scenario

#: name of the scenario and what is laid over it; context; batch -> published speed-up.
DFLASH_QWEN = (
    "dflash",
    ("hardware=b200-sxm", "model=qwen3-8b", "cost_model={kind: roofline, engine: sglang}",
     "arms.dflash-k9.speculative_config.num_speculative_tokens=15",
     "arms.dflash-k9.acceptance.tokens_per_step={15: 8.01}"),
    1000,
    {1: 5.1, 4: 4.5, 8: 4.5, 16: 3.9, 32: 2.8},
)  # fmt: skip
DFLASH_LLAMA = (
    "dflash",
    ("hardware=b200-sxm", "cost_model={kind: roofline, engine: sglang}"),
    250,
    {1: 2.4, 4: 2.2, 8: 2.1, 16: 1.8, 32: 1.6},
)
LOOKAHEAD_VICUNA = (
    "lookahead",
    ("hardware=a100-sxm-80gb", "model=llama-2-7b", "engine.max_model_len=2048",
     "cost_model={kind: roofline, engine: hf}"),
    300,
    {1: 1.34},
)  # fmt: skip


@pytest.mark.parametrize(
    "published",
    [
        pytest.param(DFLASH_QWEN, id="dflash, Qwen3-8B, Math500, B200, SGLang: arXiv 2602.06036, Table 3"),
        pytest.param(
            DFLASH_LLAMA,
            id="dflash, Llama-3.1-8B, GSM8K, B200, SGLang: arXiv 2602.06036, Table 5",
            marks=pytest.mark.xfail(reason="17 to 23 % too fast: blocks have a fixed cost, prefill its own steps"),
        ),
        pytest.param(LOOKAHEAD_VICUNA, id="lookahead, Vicuna-7B, A100, Hugging Face: Spec-Bench leaderboard"),
    ],
)  # fmt: skip
def test_speed_up_is_the_published_one_within_the_models_band(published) -> None:
    name, overrides, context, figures = published
    loaded = load_scenario(f"methods/{name}", overrides=overrides)
    setups = {arm: set_up(loaded.scenario, arm, Path()) for arm in loaded.scenario.arms}
    spec = next(setup for setup in setups.values() if setup.arm.speculates)
    for batch, measured in figures.items():
        priced, low, high = speedup_and_band(spec, setups["plain"], batch, context)
        sigma = math.log(low / priced) if measured < priced else math.log(high / priced)
        print(f"batch {batch}: {priced:.2f} priced, {measured:.2f} published ({priced / measured - 1:+.0%})")
        assert abs(math.log(measured / priced)) <= 2 * abs(sigma)
